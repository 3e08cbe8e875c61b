// Makes large transfers through memory that a server on the same host shares.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/channel.h>

#include "absl/types/span.h"
#include "tensord/client/internal/bulk.h"
#include "tensord/client/internal/call_registry.h"
#include "tensord/client/internal/shared_ring.h"
#include "tensord/common/util/mutex.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::internal {

// A session's rings (shared_ring.h). Opens a ring when a transfer needs one, and keeps it for later
// transfers. One thread at a time uses a ring. If no ring is free, the caller uses the connection
// instead. Thread-safe.
class SharedMemory {
 public:
  SharedMemory(std::shared_ptr<grpc::Channel> channel, CallRegistry* calls);

  // Allows rings if the server's `boot_id` equals this host's, unless TENSORD_SHARED_MEMORY=0 is
  // set. Before this call no ring is opened.
  void Enable(const std::string& boot_id);

  // Transfer as the functions of bulk.h do, through shared memory. Block until the transfer has
  // ended. If the transfer didn't start, return nullopt: the caller must use the connection.
  std::optional<grpc::Status> Upload(const v1::WriteSpec& spec, absl::Span<const uint8_t> data,
                                     const Progress& progress);
  std::optional<grpc::Status> Download(const v1::ReadRequest& request, absl::Span<uint8_t> out,
                                       const Progress& progress);

  // Closes idle rings now, and other rings when their transfers end.
  void Close();

 private:
  // Returns a ring for a transfer of `bytes`, or null.
  std::unique_ptr<SharedRing> TakeRing(const std::string& session, size_t bytes);
  void ReturnRing(std::unique_ptr<SharedRing> ring);

  const std::unique_ptr<v1::TensorService::Stub> stub_;
  CallRegistry* const calls_;

  Mutex mu_;
  bool enabled_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  int rings_ ABSL_GUARDED_BY(mu_) = 0;  // idle and in use
  std::vector<std::unique_ptr<SharedRing>> idle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::internal
