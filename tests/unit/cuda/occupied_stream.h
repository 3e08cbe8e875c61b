// Blocks a stream for a test.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>

#include "tensord/server/device/buffer.h"
#include "tensord/server/device/cuda/cuda_device_internal.h"

namespace tensord::server {

// Occupies a stream, as a long kernel does, from its construction to its destruction. The
// constructor returns when the stream is occupied. The stream's GPU must be current.
class OccupiedStream {
 public:
  explicit OccupiedStream(cudaStream_t stream) : state_(std::make_shared<State>()) {
    auto* reference = new std::shared_ptr<State>(state_);
    EXPECT_EQ(cudaLaunchHostFunc(stream, Occupy, reference), cudaSuccess);
    std::unique_lock<std::mutex> lock(state_->mu);
    state_->changed.wait(lock, [&] { return state_->occupied; });
  }
  ~OccupiedStream() {
    const std::lock_guard<std::mutex> lock(state_->mu);
    state_->released = true;
    state_->changed.notify_all();
  }
  OccupiedStream(const OccupiedStream&) = delete;
  OccupiedStream& operator=(const OccupiedStream&) = delete;

 private:
  struct State {
    std::mutex mu;
    std::condition_variable changed;
    bool occupied = false;
    bool released = false;
  };

  static void CUDART_CB Occupy(void* data) {
    const std::unique_ptr<std::shared_ptr<State>> reference(
        static_cast<std::shared_ptr<State>*>(data));
    State& state = **reference;
    std::unique_lock<std::mutex> lock(state.mu);
    state.occupied = true;
    state.changed.notify_all();
    state.changed.wait(lock, [&] { return state.released; });
  }

  const std::shared_ptr<State> state_;
};

// Returns the compute stream of the CUDA device of `buffer`.
inline cudaStream_t ComputeStreamOf(const Buffer& buffer) {
  return static_cast<cuda::CudaDevice&>(buffer.device()).compute_stream();
}

}  // namespace tensord::server
