#include "tensord/tests/unit/cuda_emulation/emulation_fixture.h"

#include <cstring>

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
  MakeStreams();
}

void EmulationTest::MakeStreams() {
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&first_, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&second_, cudaStreamNonBlocking), cudaSuccess);
}

void EmulationTest::ResetDevice() {
  cudaSetDevice(0);  // may return a sticky error
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  cudaGetLastError();
  MakeStreams();
}

void EmulationTest::TearDown() {
  cudaStreamDestroy(first_);
  cudaStreamDestroy(second_);
  TheOptions() = options_;
  InjectFailure({});
  cudaSetDevice(0);
  cudaDeviceReset();
  cudaGetLastError();
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

cudaMemPool_t EmulationTest::MakePool(int device, size_t max_bytes) {
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  properties.maxSize = max_bytes;
  cudaMemPool_t pool = nullptr;
  EXPECT_EQ(cudaMemPoolCreate(&pool, &properties), cudaSuccess);
  return pool;
}

int* EmulationTest::TakeFromPool(cudaMemPool_t pool, size_t bytes) {
  void* data = nullptr;
  EXPECT_EQ(cudaMallocFromPoolAsync(&data, bytes, pool, first_), cudaSuccess);
  return static_cast<int*>(data);
}

bool EmulationTest::HasNewReports() {
  const bool has_new = UnexpectedReports() > 0;
  ExpectReports();
  return has_new;
}

}  // namespace tensord::cuda_emulation
