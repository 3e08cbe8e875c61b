// Uploads from host memory that is registered with CUDA.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cuda_fixture.h"
#include "tensord/server/device/cuda/cuda_device.h"
#include "tensord/server/device/host_memory.h"
#include "tensord/tests/unit/cuda/checked_cuda_device.h"
#include "tensord/tests/unit/cuda/occupied_stream.h"

namespace tensord::server {
namespace {

class CudaHostMemoryTest : public CudaTest {
 protected:
  static constexpr int64_t kBytes = 4 << 20;

  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    data_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(data_, MAP_FAILED);
    memory_ = std::make_unique<HostMemory>(data_, kBytes);
    for (int64_t i = 0; i < kBytes; ++i)
      memory_->data()[i] = static_cast<char>(i * 2654435761 >> 9);
  }
  void TearDown() override {
    memory_.reset();
    if (data_ != nullptr) munmap(data_, kBytes);
    CudaTest::TearDown();
  }

  // Uploads `bytes` bytes at `offset` of the memory, and expects that a download returns them.
  void ExpectUploaded(Device& device, int64_t offset, int64_t bytes) {
    const BufferRef buffer = *device.AllocateForTransfer(bytes);
    const absl::Status written = device.WriteFrom(*buffer, 0, *memory_, offset, bytes);
    ASSERT_TRUE(written.ok()) << written;
    const HostTensor received = Download({DType::kUInt8, {bytes}}, buffer);
    EXPECT_TRUE(received.bytes == std::string(memory_->data() + offset, bytes));
  }

  // Returns true if the memory is registered with CUDA.
  bool IsRegistered() {
    const cudaError_t error = cudaHostRegister(data_, kBytes, cudaHostRegisterPortable);
    if (error == cudaSuccess) {
      EXPECT_EQ(cudaHostUnregister(data_), cudaSuccess);
    }
    cudaGetLastError();
    return error == cudaErrorHostMemoryAlreadyRegistered;
  }

  void* data_ = nullptr;
  std::unique_ptr<HostMemory> memory_;
};

TEST_F(CudaHostMemoryTest, StaysRegisteredFromFirstUseToDestruction) {
  EXPECT_FALSE(IsRegistered());
  ExpectUploaded(*cuda_, 0, kBytes);
  EXPECT_TRUE(IsRegistered());
  ExpectUploaded(*cuda_, 1001, 500'000);
  memory_.reset();
  EXPECT_FALSE(IsRegistered());
}

TEST_F(CudaHostMemoryTest, IsRegisteredOnceForAllDevices) {
  const int gpu = CudaDeviceCount(nullptr) > 1 ? 1 : 0;
  auto other = MakeCheckedCudaDevice({DeviceKind::kCuda, 1}, gpu, kLimitBytes);
  ASSERT_TRUE(other.ok()) << other.status();
  std::vector<std::thread> threads;
  for (Device* device : {cuda_.get(), other->get(), cuda_.get(), other->get()}) {
    threads.emplace_back([this, device] {
      for (int i = 0; i < 10; ++i) ExpectUploaded(*device, i * 1000, 1 << 20);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CudaHostMemoryTest, ReceivesDownloads) {
  const BufferRef buffer = *cuda_->AllocateForTransfer(kBytes);
  const std::string sent(memory_->data(), kBytes);
  ASSERT_TRUE(cuda_->WriteFrom(*buffer, 0, *memory_, 0, kBytes).ok());
  std::memset(memory_->data(), 0, kBytes);
  const absl::Status read = cuda_->ReadInto(*buffer, 1001, *memory_, 77, 500'000);
  ASSERT_TRUE(read.ok()) << read;
  const std::string zeros(kBytes, 0);
  EXPECT_TRUE(std::string(memory_->data(), kBytes) ==
              zeros.substr(0, 77) + sent.substr(1001, 500'000) + zeros.substr(77 + 500'000));
  EXPECT_TRUE(IsRegistered());
}

// The client may overwrite the memory after the call returns.
TEST_F(CudaHostMemoryTest, MayBeOverwrittenAfterTheUpload) {
  const BufferRef buffer = *cuda_->AllocateForTransfer(kBytes);
  const std::string sent(memory_->data(), kBytes);
  ASSERT_TRUE(cuda_->WriteFrom(*buffer, 0, *memory_, 0, kBytes).ok());
  std::memset(memory_->data(), 0, kBytes);
  EXPECT_TRUE(Download({DType::kUInt8, {kBytes}}, buffer).bytes == sent);
}

// Unregistering memory blocks until the GPU has finished its current work. On a real GPU, all other
// calls of the driver block, too, so this test then checks only that both calls end.
TEST_F(CudaHostMemoryTest, UploadsWhileOtherMemoryIsUnregistered) {
  const std::string sent(kBytes, 'x');
  void* data = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  auto other = std::make_unique<HostMemory>(data, kBytes);
  const BufferRef buffer = *cuda_->AllocateForTransfer(kBytes);
  ASSERT_TRUE(cuda_->WriteFrom(*buffer, 0, *other, 0, kBytes).ok());
  std::future<void> unregistered, uploaded;  // their destructors wait, after the stream is free
  {
    const OccupiedStream occupied(ComputeStreamOf(*buffer));
    unregistered = std::async(std::launch::async, [&] { other.reset(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // it has begun by then
    uploaded = std::async(std::launch::async, [&] { ExpectUploaded(*cuda_, 0, kBytes); });
    if (IsEmulated()) {
      EXPECT_EQ(uploaded.wait_for(std::chrono::minutes(1)), std::future_status::ready);
    }
  }
  unregistered.get();
  uploaded.get();
  munmap(data, kBytes);
}

TEST_F(CudaHostMemoryTest, IsCopiedByTheHostIfCudaRefusesToRegisterIt) {
  ASSERT_EQ(cudaHostRegister(data_, 4096, cudaHostRegisterPortable), cudaSuccess);
  testing::internal::CaptureStderr();
  ExpectUploaded(*cuda_, 0, kBytes);
  ExpectUploaded(*cuda_, 0, kBytes);
  const std::string log = testing::internal::GetCapturedStderr();
  static int expected = 1;  // once per process, even if the test is repeated
  int lines = 0;
  for (size_t at = 0; (at = log.find("cudaHostRegister failed", at)) != std::string::npos; ++at) {
    ++lines;
  }
  EXPECT_EQ(lines, expected) << log;
  expected = 0;
  EXPECT_EQ(cudaHostUnregister(data_), cudaSuccess);
}

}  // namespace
}  // namespace tensord::server
