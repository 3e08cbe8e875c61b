// The channels to a server, and the classes that use them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tensord/client/client.h"
#include "tensord/client/internal/call_registry.h"
#include "tensord/client/internal/command_queue.h"
#include "tensord/client/internal/counters.h"
#include "tensord/client/internal/credentials.h"
#include "tensord/client/internal/peer_route_backoff.h"
#include "tensord/client/internal/reply_table.h"
#include "tensord/client/internal/session.h"
#include "tensord/client/internal/shared_memory.h"
#include "tensord/client/internal/stream.h"
#include "tensord/client/internal/upload_connections.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::internal {

// Returns OK for "host:port", "[v6]:port" and "unix:/path", otherwise INVALID_ARGUMENT.
absl::Status CheckAddress(absl::string_view address);

struct Session::Connection {
  Connection(const std::string& address, const ConnectOptions& options,
             const Credentials& credentials);

  // Replaces `stub` and its channel: the next call makes a new attempt to connect. No call of
  // `stub` may be under way.
  void RenewUnaryChannel();

  const std::function<std::shared_ptr<grpc::Channel>()> make_channel;
  // Bulk data has a connection of its own, so that commands don't queue behind it. Unary calls also
  // have one: on the server, a connection wakes up every thread that has served a call on it.
  const std::shared_ptr<grpc::Channel> command_channel;
  const std::shared_ptr<grpc::Channel> bulk_channel;
  // For unary calls. Only RenewUnaryChannel replaces it.
  std::unique_ptr<v1::TensorService::Stub> stub;
  grpc::GenericStub command_stub;
  grpc::GenericStub bulk_stub;

  Counters counters;
  CommandQueue queue;
  ReplyTable replies;
  std::atomic<uint64_t> num_mark_calls{0};  // calls of SendMark
  CallRegistry calls;
  SharedMemory shared_memory;
  UploadConnections upload_connections;
  PeerRouteBackoff peer_route_backoff;  // for copies from other servers to this one
  // The last member, because its thread uses the others.
  std::unique_ptr<Stream> stream;
};

}  // namespace tensord::internal
