// A kernel that reads an invalid address destroys the GPU's context. A reset makes an emulated GPU
// usable again in the same process. If a real GPU needs a new process, the tests check the loss and
// skip the steps after the reset.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "tensord/server/device/cuda/cuda_device.h"
#include "tensord/server/device/restartable_device.h"
#include "tensord/tests/test_launch.h"
#include "tensord/tests/unit/cuda/checked_cuda_device.h"
#include "tensord/tests/unit/cuda/cuda_fixture.h"

namespace tensord::server {
namespace {

using testing::HasSubstr;

class CudaFaultTest : public CudaTest {
 protected:
  void SetUp() override {
    if (needs_new_process_) GTEST_SKIP() << "after an earlier test, this process can't use the GPU";
    CudaTest::SetUp();
    if (IsSkipped()) return;
    cuda_.reset();
    auto device = RestartableDevice::Create(
        {[] {
           return MakeCheckedCudaDevice({DeviceKind::kCuda, 0}, 0, kLimitBytes);
         },
         "GPU 0", [] { return ResetCudaDevice(0); }});
    ASSERT_TRUE(device.ok()) << device.status();
    cuda_ = *std::move(device);
  }

  RestartableDevice& restartable() { return *cuda_->restartable(); }

  // Runs a kernel that reads an invalid address.
  void Break() {
    const TensorSpec spec{DType::kFloat32, {1 << 20}};
    const BufferRef out = *cuda_->Allocate(spec.size_bytes());
    const Attributes attrs;
    const Operand input = {&spec, reinterpret_cast<void*>(uintptr_t{0x1000})};
    // The error may appear only at the fence.
    cuda_
        ->Launch({TestLaunch(*cuda_).context(),
                  FindOp("neg"),
                  &attrs,
                  absl::MakeConstSpan(&input, 1),
                  {{&spec, out->data()}}})
        .IgnoreError();
    std::promise<absl::Status> fenced;
    cuda_->Fence([&](absl::Status status) { fenced.set_value(std::move(status)); });
    EXPECT_EQ(fenced.get_future().get().code(), absl::StatusCode::kDataLoss);
    ExpectMisuse();
  }

  // Resets the GPU of a lost device, and restarts the device. If a real GPU can't be reset, skips
  // the test. The caller must check IsSkipped().
  void Restart() {
    restartable().Abandon();
    const absl::Status reset = restartable().Reset();
    if (!reset.ok() && !IsEmulated()) {
      needs_new_process_ = true;
      EXPECT_EQ(reset.code(), absl::StatusCode::kUnavailable) << reset;
      GTEST_SKIP() << "the GPU needs a new process: " << reset;
    }
    ASSERT_TRUE(reset.ok()) << reset;
    const absl::Status back = restartable().Restart();
    ASSERT_TRUE(back.ok()) << back;
  }

  // Breaks the device and restarts it.
  void BreakAndRestart() {
    Break();
    restartable().Poll();
    Restart();
  }

  // Returns the GPU's free memory, as the driver reports it.
  static int64_t FreeBytes() {
    size_t free_bytes = 0, total_bytes = 0;
    EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
    return static_cast<int64_t>(free_bytes);
  }

  static inline bool needs_new_process_ = false;

  void ExpectWorks() {
    const HostTensor ones = HostTensor::Of<float>(DType::kFloat32, {4}, {1, 2, 3, 4});
    const HostTensor sum = Run(*cuda_, "add", {ones, ones}, {});
    for (int i = 0; i < 4; ++i) EXPECT_EQ(sum.At(i), 2 * (i + 1));
  }
};

TEST_F(CudaFaultTest, DeviceIsLostByAnIllegalAddressAndRestarts) {
  constexpr int64_t kDroppedBytes = int64_t{256} << 20;
  int64_t free_bytes = 0;
  for (int round = 0; round < 3; ++round) {
    ExpectWorks();
    if (round == 0) free_bytes = FreeBytes();
    BufferRef kept = *cuda_->Allocate(1 << 20);
    BufferRef dropped = *cuda_->Allocate(kDroppedBytes);
    Break();
    dropped.reset();  // after the fault, before the reset
    restartable().Poll();
    ASSERT_EQ(cuda_->health().state, DeviceState::kLost);
    EXPECT_THAT(cuda_->health().reason, HasSubstr("cudaError"));
    ASSERT_NE(kept->device().loss(), nullptr);
    char byte = 0;
    EXPECT_EQ(cuda_->Read(*kept, 0, &byte, 1).code(), absl::StatusCode::kDataLoss);
    Restart();
    if (IsSkipped()) return;
    EXPECT_EQ(cuda_->memory().used_bytes, 0);
    kept.reset();
    ExpectWorks();
    EXPECT_GT(FreeBytes(), free_bytes - kDroppedBytes / 2);
  }
}

// A ring shared with a client stays in use after the device is lost. The reset undoes its
// registration with CUDA.
TEST_F(CudaFaultTest, UploadsFromSharedMemoryAfterAReset) {
  const std::string sent(4 << 20, 'x');
  void* const data =
      mmap(nullptr, sent.size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  std::memcpy(data, sent.data(), sent.size());
  const auto bytes = static_cast<int64_t>(sent.size());
  auto memory = std::make_unique<HostMemory>(data, bytes);
  for (int round = 0; round < 2; ++round) {
    const BufferRef buffer = *cuda_->AllocateForTransfer(bytes);
    const absl::Status written = cuda_->WriteFrom(*buffer, 0, *memory, 0, bytes);
    ASSERT_TRUE(written.ok()) << written;
    EXPECT_TRUE(Download({DType::kUInt8, {bytes}}, buffer).bytes == sent);
    Break();
    restartable().Poll();
    EXPECT_EQ(cuda_->WriteFrom(*buffer, 0, *memory, 0, bytes).code(), absl::StatusCode::kDataLoss);
    Restart();
    if (IsSkipped()) break;
  }
  memory.reset();
  munmap(data, sent.size());
}

// CUDA refuses to register memory if a part of it is registered.
TEST_F(CudaFaultTest, RegistersMemoryThatCudaRefusedBeforeTheReset) {
  constexpr int64_t kBytes = 1 << 20;
  void* const data =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  auto memory = std::make_unique<HostMemory>(data, kBytes);
  const auto upload = [&] {
    const BufferRef buffer = *cuda_->AllocateForTransfer(kBytes);
    const absl::Status written = cuda_->WriteFrom(*buffer, 0, *memory, 0, kBytes);
    EXPECT_TRUE(written.ok()) << written;
    Wait(*cuda_);
  };
  const auto is_registered = [&] {
    const cudaError_t error = cudaHostRegister(data, kBytes, cudaHostRegisterPortable);
    if (error == cudaSuccess) cudaHostUnregister(data);
    cudaGetLastError();
    return error == cudaErrorHostMemoryAlreadyRegistered;
  };
  ASSERT_EQ(cudaHostRegister(data, 4096, cudaHostRegisterPortable), cudaSuccess);
  upload();
  ASSERT_EQ(cudaHostUnregister(data), cudaSuccess);
  upload();
  EXPECT_FALSE(is_registered());
  BreakAndRestart();
  if (IsSkipped()) return;
  upload();
  EXPECT_TRUE(is_registered());
  memory.reset();
  EXPECT_FALSE(is_registered());
  munmap(data, kBytes);
}

// The reset destroys the event that orders the free after the copy.
TEST_F(CudaFaultTest, FreesTheSourceOfACopyAfterTheResetOfItsReader) {
  if (CudaDeviceCount(nullptr) < 2) GTEST_SKIP() << "there is one GPU";
  constexpr int64_t kBytes = 1 << 20;
  auto other = MakeCheckedCudaDevice({DeviceKind::kCuda, 1}, 1, kLimitBytes);
  ASSERT_TRUE(other.ok()) << other.status();
  BufferRef source = *(*other)->Allocate(kBytes), unread = *(*other)->Allocate(kBytes);
  BufferRef copy = *cuda_->Allocate(kBytes);
  const absl::Status copied = cuda_->CopyFrom(*copy, *source, kBytes);
  ASSERT_TRUE(copied.ok()) << copied;
  copy.reset();
  BreakAndRestart();
  if (IsSkipped()) return;
  source.reset();
  copy = *cuda_->Allocate(kBytes);
  EXPECT_TRUE(cuda_->CopyFrom(*copy, *unread, kBytes).ok());
  Wait(**other);
  EXPECT_TRUE((*other)->Check().ok());
}

}  // namespace
}  // namespace tensord::server
