// Tensor memory that gRPC sends from where it lies.
#pragma once

#include <grpcpp/support/slice.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include "tensord/common/util/mutex.h"
#include "tensord/server/device/buffer.h"

namespace tensord::server {

// Makes slices that refer to tensor memory, and counts them. When a write has completed, gRPC may
// still hold its slices: each keeps its buffer until the transport has released it. Thread-safe.
class ZeroCopySlices {
 public:
  ZeroCopySlices() : state_(std::make_shared<State>()) {}
  ~ZeroCopySlices() { Close(std::chrono::steady_clock::now()); }

  // Returns a slice of `bytes` > 0 of a host-accessible buffer, from `offset` on.
  grpc::Slice Make(BufferRef buffer, int64_t offset, int64_t bytes);

  // Blocks until gRPC has released all slices, or until the deadline. A slice that remains, because
  // its reader has stopped reading, is never freed, so that devices may be destroyed; the process
  // is about to end.
  void Close(std::chrono::steady_clock::time_point deadline);

 private:
  struct State {
    Mutex mu;
    CondVar all_released;
    int64_t slices ABSL_GUARDED_BY(mu) = 0;
    bool closed ABSL_GUARDED_BY(mu) = false;
  };
  struct Reference;
  static void Release(void* reference);

  const std::shared_ptr<State> state_;
};

}  // namespace tensord::server
