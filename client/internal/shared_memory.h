// Large transfers through memory shared with a server on the same host.
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
#include "tensord/common/mutex.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::internal {

// Thread-safe. Rings are opened as they are needed and kept for the next transfer; one thread at a
// time uses a ring, and where there is none to be had the transfer is the connection's.
class SharedMemory {
 public:
  SharedMemory(std::shared_ptr<grpc::Channel> channel, CallRegistry* calls);

  // The server's boot id, by which it may be asked for memory where it is this host's. Until then,
  // and where TENSORD_SHARED_MEMORY=0 is set, nothing is shared.
  void Enable(const std::string& boot_id);

  // How the transfer ended; none where it is to go over the connection.
  std::optional<grpc::Status> Upload(const v1::WriteSpec& spec, absl::Span<const uint8_t> data,
                                     const Progress& progress);
  std::optional<grpc::Status> Download(const v1::ReadRequest& request, absl::Span<uint8_t> out,
                                       const Progress& progress);

  // Gives back the rings that nobody uses.
  void Close();

 private:
  // A ring for a transfer of `bytes`, or null.
  std::unique_ptr<SharedRing> Take(const std::string& session, size_t bytes);
  void GiveBack(std::unique_ptr<SharedRing> ring);

  const std::unique_ptr<v1::TensorService::Stub> stub_;
  CallRegistry* const calls_;

  Mutex mu_;
  bool enabled_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  int rings_ ABSL_GUARDED_BY(mu_) = 0;  // idle and in use
  std::vector<std::unique_ptr<SharedRing>> idle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::internal
