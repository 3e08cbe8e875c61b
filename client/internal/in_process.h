// Servers within this process, for tests of what no machine has servers enough for.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/server.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>

#include "absl/strings/string_view.h"

namespace tensord::internal {

// From now on, "inproc:" and anything is an address of `server`, which outlives all connections to
// it. Null: no such addresses any more.
void ServeInProcess(grpc::Server* server);

bool IsInProcess(absl::string_view address);
// To the server; it must be there.
std::shared_ptr<grpc::Channel> InProcessChannel(const grpc::ChannelArguments& arguments);

}  // namespace tensord::internal
