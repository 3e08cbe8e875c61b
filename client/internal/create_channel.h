// Creates the library's gRPC channels.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>

namespace tensord::internal {

// Returns a channel to `address`. The channel connects at its first call. Thread-safe. A test with
// servers in its own process may link another definition instead of create_channel.cc.
std::shared_ptr<grpc::Channel> CreateChannel(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    const grpc::ChannelArguments& arguments);

}  // namespace tensord::internal
