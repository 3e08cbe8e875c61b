// Tensor memory that gRPC sends from where it lies.
#pragma once

#include <grpcpp/support/slice.h>

#include <cstdint>

#include "tensord/common/mutex.h"
#include "tensord/server/device/buffer.h"

namespace tensord::server {

// Thread-safe. A write that is complete may still have its memory in gRPC's hands: each slice holds
// its buffer until the transport has let go of it. Outlives the slices.
class LentMemory {
 public:
  // `bytes` > 0 of a host-accessible buffer, from `offset` on.
  grpc::Slice Lend(BufferRef buffer, int64_t offset, int64_t bytes);

  // Until everything has come back. The connections must have been closed.
  void AwaitAll();

 private:
  struct Loan;
  static void Return(void* loan);

  Mutex mu_;
  CondVar returned_;
  int64_t loans_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tensord::server
