// Two streams on emulated device 0, and memory on it.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/failure.h"
#include "tensord/tests/cuda_emulation/flag.h"

namespace tensord::cuda_emulation {

// Blocks a stream until Release() or the destructor.
class StreamBlocker {
 public:
  explicit StreamBlocker(cudaStream_t stream);
  ~StreamBlocker() { Release(); }
  void Release() { released_->Set(); }

 private:
  FlagRef released_ = std::make_shared<Flag>();
};

class EmulationTest : public testing::Test {
 protected:
  // Makes device 0 current. TearDown() resets the device and restores the options.
  void SetUp() override;
  void TearDown() override;

  // Returns `size` ints on device 0, all `value`. The caller frees them with cudaFree().
  int* MakeInts(int size, int value);
  // Returns a pool on a device. The caller destroys it. If `max_bytes` is 0, the pool has no limit.
  static cudaMemPool_t MakePool(int device, size_t max_bytes = 0);
  // Returns memory of a pool, allocated in the order of first_.
  int* TakeFromPool(cudaMemPool_t pool, size_t bytes);
  // Returns a copy of `size` ints of device 0, made in the order of `stream`. Blocks.
  std::vector<int> Download(const int* data, int size, cudaStream_t stream);

  // Resets device 0 and creates both streams again.
  void ResetDevice();

  // Returns true if there have been reports since the test began or since the last call. If there
  // are such reports at the end of a test, the test fails.
  bool HasNewReports();

  cudaStream_t first_ = nullptr, second_ = nullptr;

 private:
  void MakeStreams();

  Options options_;
};

}  // namespace tensord::cuda_emulation
