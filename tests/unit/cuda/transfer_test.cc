#include <algorithm>
#include <thread>

#include "cuda_fixture.h"
#include "tensord/server/device/cuda/cuda_device.h"
#include "tensord/tests/unit/cuda/checked_cuda_device.h"

namespace tensord::server {
namespace {

HostTensor MakeBytes(int64_t size, uint64_t salt) {
  HostTensor tensor{{DType::kUInt8, {size}}, std::string(static_cast<size_t>(size), '\0')};
  uint64_t state = salt + 1;
  for (char& byte : tensor.bytes) {
    state = state * 6364136223846793005 + 1442695040888963407;
    byte = static_cast<char>(state >> 56);
  }
  return tensor;
}

TEST_F(CudaTest, DownloadsUploadedBytes) {
  // Sizes around those of a piece, of a slot of the ring and of the whole ring, and far larger.
  for (int64_t size : {1, 3, 262143, 262145, 1048577, 16777215, 50000001}) {
    const HostTensor sent = MakeBytes(size, 1);
    const BufferRef buffer = Upload(*cuda_, sent);
    EXPECT_TRUE(Download(sent.spec, buffer).bytes == sent.bytes) << size;
  }
}

TEST_F(CudaTest, WritesAndReadsParts) {
  const HostTensor sent = MakeBytes(5'000'000, 2);
  const auto buffer = cuda_->Allocate(5'000'000);
  ASSERT_TRUE(buffer.ok());
  for (int64_t at = 0; at < 5'000'000; at += 700'001) {
    const int64_t size = std::min<int64_t>(700'001, 5'000'000 - at);
    ASSERT_TRUE(cuda_->Write(**buffer, at, sent.bytes.data() + at, size).ok());
  }
  std::string part(1234567, '\0');
  ASSERT_TRUE(cuda_->Read(**buffer, 3'000'001, part.data(), 1234567).ok());
  EXPECT_TRUE(part == sent.bytes.substr(3'000'001, 1234567));
}

TEST_F(CudaTest, RunsManyTransfersAtOnce) {
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 8; ++i) {
    threads.emplace_back([this, i] {
      const HostTensor sent = MakeBytes(9'000'000 + static_cast<int64_t>(i), i);
      const BufferRef buffer = Upload(*cuda_, sent);
      EXPECT_TRUE(Download(sent.spec, buffer).bytes == sent.bytes) << i;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CudaTest, KernelsSeeEarlierWrites) {
  const HostTensor big = MakeValues(DType::kFloat32, {4'000'001}, 3);
  for (int i = 0; i < 5; ++i) ExpectSame("neg", {big});
}

TEST_F(CudaTest, CopiesBetweenLogicalDevicesOfOneGpu) {
  auto other = MakeCheckedCudaDevice({DeviceKind::kCuda, 1}, 0, kLimitBytes);
  ASSERT_TRUE(other.ok()) << other.status();
  const HostTensor sent = MakeBytes(3'000'003, 4);
  BufferRef source = Upload(*cuda_, sent);
  const auto copy = (*other)->Allocate(sent.spec.size_bytes());
  ASSERT_TRUE(copy.ok());
  ASSERT_TRUE((*other)->CopyFrom(**copy, *source, sent.spec.size_bytes()).ok());
  source.reset();  // while the copy may still run
  const BufferRef reused = Upload(*cuda_, MakeBytes(3'000'003, 5));
  Wait(**other);
  EXPECT_TRUE(Download(sent.spec, *copy).bytes == sent.bytes);
}

TEST_F(CudaTest, CopiesABufferRepeatedly) {
  auto other = MakeCheckedCudaDevice({DeviceKind::kCuda, 1}, 0, kLimitBytes);
  ASSERT_TRUE(other.ok()) << other.status();
  const HostTensor sent = MakeBytes(1003, 9);
  BufferRef source = Upload(*cuda_, sent);
  BufferRef copy;
  for (int i = 0; i < 5; ++i) {
    copy = *(*other)->Allocate(sent.spec.size_bytes());
    ASSERT_TRUE((*other)->CopyFrom(*copy, *source, sent.spec.size_bytes()).ok());
    Wait(**other);
    EXPECT_TRUE(Download(sent.spec, copy).bytes == sent.bytes) << "copy " << i;
  }
  source.reset();
  EXPECT_EQ(cuda_->memory().used_bytes, 0);
}

TEST_F(CudaTest, CopiesWithinItself) {
  const HostTensor sent = MakeBytes(1'000'003, 6);
  const BufferRef source = Upload(*cuda_, sent);
  const auto copy = cuda_->Allocate(sent.spec.size_bytes());
  ASSERT_TRUE(copy.ok());
  ASSERT_TRUE(cuda_->CopyFrom(**copy, *source, sent.spec.size_bytes()).ok());
  Wait(*cuda_);
  EXPECT_TRUE(Download(sent.spec, *copy).bytes == sent.bytes);
}

TEST_F(CudaTest, CopiesFromTheCpuAndBack) {
  const HostTensor sent = MakeBytes(20'000'003, 7);
  const BufferRef host = Upload(*cpu_, sent);
  const auto there = cuda_->Allocate(sent.spec.size_bytes());
  const auto back = cpu_->Allocate(sent.spec.size_bytes());
  ASSERT_TRUE(there.ok() && back.ok());
  ASSERT_TRUE(cuda_->CopyFrom(**there, *host, sent.spec.size_bytes()).ok());
  Wait(*cuda_);
  ASSERT_TRUE(cpu_->CopyFrom(**back, **there, sent.spec.size_bytes()).ok());
  EXPECT_TRUE(Download(sent.spec, *back).bytes == sent.bytes);
}

TEST_F(CudaTest, CopiesBetweenGpus) {
  if (CudaDeviceCount(nullptr) < 2) GTEST_SKIP() << "there is one GPU";
  auto other = MakeCheckedCudaDevice({DeviceKind::kCuda, 1}, 1, kLimitBytes);
  ASSERT_TRUE(other.ok()) << other.status();
  const HostTensor sent = MakeBytes(8'000'001, 8);
  const BufferRef source = Upload(*cuda_, sent);
  const auto copy = (*other)->Allocate(sent.spec.size_bytes());
  ASSERT_TRUE(copy.ok());
  ASSERT_TRUE((*other)->CopyFrom(**copy, *source, sent.spec.size_bytes()).ok());
  Wait(**other);
  EXPECT_TRUE(Download(sent.spec, *copy).bytes == sent.bytes);
}

}  // namespace
}  // namespace tensord::server
