// Slices with which gRPC sends tensor memory without a copy.
#pragma once

#include <grpcpp/support/slice.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include "tensord/common/util/mutex.h"
#include "tensord/server/device/buffer.h"

namespace tensord::server {

// Makes slices that refer to tensor memory, and counts them. gRPC may hold a slice after its write
// has completed. So each slice keeps its buffer alive until gRPC has released the slice.
// Thread-safe.
class ZeroCopySlices {
 public:
  ZeroCopySlices() : state_(std::make_shared<State>()) {}
  ~ZeroCopySlices() { Close(std::chrono::steady_clock::now()); }

  // Returns a slice of `bytes` bytes, more than 0, of a host-accessible buffer from `offset` on.
  grpc::Slice Make(BufferRef buffer, int64_t offset, int64_t bytes);

  // Blocks until gRPC has released all slices, or until the deadline. Slices that remain, because a
  // client has stopped reading, are never freed. So the devices may then be destroyed. Call it only
  // at the end of the process.
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
