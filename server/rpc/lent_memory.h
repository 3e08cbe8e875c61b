// Tensor memory that gRPC sends from where it lies.
#pragma once

#include <grpcpp/support/slice.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include "tensord/common/mutex.h"
#include "tensord/server/device/buffer.h"

namespace tensord::server {

// Thread-safe. A write that is complete may still have its memory in gRPC's hands: each slice holds
// its buffer until the transport has let go of it.
class LentMemory {
 public:
  LentMemory() : state_(std::make_shared<State>()) {}
  ~LentMemory() { Close(std::chrono::steady_clock::now()); }

  // `bytes` > 0 of a host-accessible buffer, from `offset` on.
  grpc::Slice Lend(BufferRef buffer, int64_t offset, int64_t bytes);

  // Waits until everything has come back. What hasn't at the deadline, because its reader has
  // stopped reading, is never freed, so that devices may go; the process is about to end.
  void Close(std::chrono::steady_clock::time_point deadline);

 private:
  struct State {
    Mutex mu;
    CondVar returned;
    int64_t loans ABSL_GUARDED_BY(mu) = 0;
    bool closed ABSL_GUARDED_BY(mu) = false;
  };
  struct Loan;
  static void Return(void* loan);

  const std::shared_ptr<State> state_;
};

}  // namespace tensord::server
