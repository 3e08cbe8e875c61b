#include "tensord/tests/unit/cuda_emulation/emulation_fixture.h"

#include <cstring>
#include <utility>

#include "tensord/tests/unit/cuda_emulation/test_kernels.h"

namespace tensord::cuda_emulation {

StreamBlocker::StreamBlocker(cudaStream_t stream) {
  auto* released = new FlagRef(released_);
  const cudaError_t error = cudaLaunchHostFunc(
      stream,
      [](void* data) {
        auto* flag = static_cast<FlagRef*>(data);
        (*flag)->Wait();
        delete flag;
      },
      released);
  EXPECT_EQ(error, cudaSuccess);
}

void EmulationTest::SetUp() {
  options_ = TheOptions();
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&first_, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&second_, cudaStreamNonBlocking), cudaSuccess);
  reports_ = ReportCount();
}

void EmulationTest::TearDown() {
  cudaStreamDestroy(first_);
  cudaStreamDestroy(second_);
  TheOptions() = options_;
  cudaSetDevice(0);
  cudaDeviceReset();
  cudaGetLastError();
  EXPECT_FALSE(HasNewReports()) << LastReport();
}

int* EmulationTest::MakeInts(int size, int value) {
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, size * sizeof(int)), cudaSuccess);
  EXPECT_EQ(LaunchFill(static_cast<int*>(data), size, value, first_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  return static_cast<int*>(data);
}

std::vector<int> EmulationTest::Download(const int* data, int size, cudaStream_t stream) {
  const size_t bytes = static_cast<size_t>(size) * sizeof(int);
  void* host = nullptr;
  EXPECT_EQ(cudaHostAlloc(&host, bytes, cudaHostAllocDefault), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(host, data, bytes, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  std::vector<int> values(static_cast<size_t>(size));
  std::memcpy(values.data(), host, bytes);
  EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
  return values;
}

bool EmulationTest::HasNewReports() {
  const int64_t before = std::exchange(reports_, ReportCount());
  return reports_ != before;
}

}  // namespace tensord::cuda_emulation
