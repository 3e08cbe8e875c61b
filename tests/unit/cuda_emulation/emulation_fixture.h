// Two streams on emulated device 0, and memory on it.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/flag.h"

namespace tensord::cuda_emulation {

// Keeps a stream from going on until Release(), or the end of its life.
class HeldStream {
 public:
  explicit HeldStream(cudaStream_t stream);
  ~HeldStream() { Release(); }
  void Release() { released_->Set(); }

 private:
  FlagRef released_ = std::make_shared<Flag>();
};

class EmulationTest : public testing::Test {
 protected:
  // Makes device 0 current, with default options. TearDown() mends the device if it is lost.
  void SetUp() override;
  void TearDown() override;

  // `size` ints on device 0, all `value`.
  int* MakeInts(int size, int value);
  // From device 0, in the order of `stream`.
  std::vector<int> Download(const int* data, int size, cudaStream_t stream);

  // Whether there have been reports since SetUp() or the last call.
  bool TakeReports();

  cudaStream_t first_ = nullptr, second_ = nullptr;

 private:
  Options options_;
  int64_t reports_ = 0;
};

}  // namespace tensord::cuda_emulation
