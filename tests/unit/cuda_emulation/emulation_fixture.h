// Two streams on emulated device 0, and memory on it.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tensord/tests/cuda_emulation/control.h"
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
  // Returns a copy of `size` ints of device 0, made in the order of `stream`. Blocks.
  std::vector<int> Download(const int* data, int size, cudaStream_t stream);

  // Returns whether there have been reports since SetUp() or the last call.
  bool HasNewReports();

  cudaStream_t first_ = nullptr, second_ = nullptr;

 private:
  Options options_;
  int64_t reports_ = 0;
};

}  // namespace tensord::cuda_emulation
