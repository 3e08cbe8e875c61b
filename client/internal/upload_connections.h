// The connections that send parts of large uploads, in parallel to the bulk connection.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tensord/client/internal/call_registry.h"
#include "tensord/client/internal/upload_plan.h"
#include "tensord/common/util/mutex.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::internal {

// Uploads at the same time share the connections. A connection opens at its first use, and gRPC
// closes it when it is idle (the channel's idle timeout). If it can't be opened, or the server
// refuses a part for its limits, uploads don't use it for a while. Thread-safe.
class UploadConnections {
 public:
  using MakeChannel = std::function<std::shared_ptr<grpc::Channel>()>;

  // An upload uses at most `max_connections`, including the bulk connection. `calls` must outlive
  // this object.
  UploadConnections(MakeChannel make_channel, int max_connections, CallRegistry* calls);

  // Sends parts of an upload, with a thread for each connection. If the upload is too small, or may
  // use only one connection, does nothing. The arguments outlive this object.
  class Senders {
   public:
    Senders(UploadConnections* connections, const v1::WriteSpec& spec,
            absl::Span<const uint8_t> data, UploadPlan* plan);
    // Stops the plan, and blocks until the parts under way have ended.
    ~Senders();
    Senders(const Senders&) = delete;
    Senders& operator=(const Senders&) = delete;

   private:
    UploadPlan* const plan_;
    std::vector<std::thread> threads_;
  };

 private:
  struct Extra {
    std::shared_ptr<grpc::Channel> channel;
    absl::Time retry_at = absl::InfinitePast();
  };

  // Sends parts over one connection until none is left, one fails, or the plan is stopped.
  void SendParts(Extra* extra, const v1::WriteSpec& spec, absl::Span<const uint8_t> data,
                 UploadPlan* plan);
  // Returns a connected channel. Returns null if the connection must not be used now, can't be
  // opened, or the plan is stopped.
  std::shared_ptr<grpc::Channel> Connect(Extra* extra, UploadPlan* plan);
  // Closes the connection, and doesn't use it for a while.
  void Pause(Extra* extra);

  const MakeChannel make_channel_;
  const int max_connections_;
  CallRegistry* const calls_;
  Mutex mu_;
  std::vector<Extra> extras_;  // mu_ guards the elements
};

}  // namespace tensord::internal
