// Makes calls of CUDA, cuBLASLt, cuDNN and NVRTC fail, one call at a time. After each failure, the program
// has recovered or returned an error that names the failure, nothing is leaked, and the GPUs work.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <nvrtc.h>
#include <sys/mman.h>

#include <cstring>
#include <string>
#include <vector>

#include "tensord/server/device/cuda/cuda_device.h"
#include "tensord/server/device/host_memory.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/failure.h"
#include "tensord/tests/unit/cuda/checked_cuda_device.h"
#include "tensord/tests/unit/cuda/failing_program.h"

namespace tensord::server {
namespace {

using cuda_emulation::InjectedFailures;
using cuda_emulation::InjectFailure;

constexpr bool kFused = true;

class InjectedFailureTest : public testing::Test {
 protected:
  struct Case {
    std::string call;
    int error;
    std::string text;    // of the Status; empty: the program may recover and succeed
    int64_t times = 1;   // how many calls fail
    bool fused = false;  // which program
  };

  void SetUp() override {
    ASSERT_EQ(cuda_emulation::LiveObjects(), "");
    options_ = cuda_emulation::TheOptions();
  }
  void TearDown() override {
    InjectFailure({});
    cuda_emulation::TheOptions() = options_;
  }

  static absl::Status RunProgram(bool fused) {
    FailingProgram program(fused);
    return program.Run();
  }

  // Makes the first call of the kind fail, then the second, and so on, until the program makes
  // fewer such calls.
  void Sweep(const Case& c) {
    constexpr int kMaxCalls = 2000;
    for (int at = 1; at <= kMaxCalls; ++at) {
      SCOPED_TRACE(testing::Message() << c.call << ", call " << at << ", error " << c.error);
      InjectFailure({c.call, at, c.error, c.times});
      const absl::Status status = RunProgram(c.fused);
      const bool failed = InjectedFailures() > 0;
      InjectFailure({});
      if (!failed) {
        EXPECT_TRUE(status.ok()) << status;
        EXPECT_GT(at, 1) << "the program makes no such call";
        return;
      }
      if (!status.ok() || !c.text.empty()) {
        ASSERT_FALSE(status.ok());
        ASSERT_THAT(std::string(status.message()), testing::HasSubstr(c.text)) << status;
      }
      ASSERT_EQ(cuda_emulation::LiveObjects(), "") << status;
      const absl::Status afterwards = RunProgram(/*fused=*/false);
      ASSERT_TRUE(afterwards.ok()) << afterwards;
      ASSERT_EQ(cuda_emulation::LiveObjects(), "");
    }
    FAIL() << "the program makes too many calls";
  }

 private:
  cuda_emulation::Options options_;
};

TEST_F(InjectedFailureTest, TheProgramSucceedsWithoutFailures) {
  for (const bool fused : {false, kFused}) {
    const absl::Status status = RunProgram(fused);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(cuda_emulation::LiveObjects(), "");
  }
}

TEST_F(InjectedFailureTest, RuntimeCalls) {
  for (const char* call :
       {"cudaGetDeviceProperties", "cudaDeviceGetAttribute", "cudaFuncGetAttributes",
        "cudaStreamCreateWithFlags", "cudaEventCreateWithFlags", "cudaMemPoolCreate",
        "cudaMemPoolSetAttribute", "cudaStreamBeginCapture", "cudaStreamEndCapture",
        "cudaGraphInstantiateWithFlags", "a launch", "cudaGraphLaunch", "copy", "cudaHostAlloc"}) {
    Sweep({call, cudaErrorUnknown, "cudaErrorUnknown"});
  }
}

TEST_F(InjectedFailureTest, CallsThatOrderStreams) {
  for (const char* call : {"cudaEventRecord", "cudaStreamWaitEvent", "cudaEventSynchronize"}) {
    Sweep({call, cudaErrorUnknown, ""});
  }
}

// Work before the copy, and delays, let it run after the free, if nothing orders them.
TEST_F(InjectedFailureTest, AFailedCopyBetweenGpusDoesNotReadItsSourceAfterTheFree) {
  constexpr int64_t kBytes = 1000;
  constexpr int kCopies = 20;
  cuda_emulation::TheOptions().max_delay_us = 3000;
  auto from = MakeCheckedCudaDevice({DeviceKind::kCuda, 0}, 0, 1 << 20);
  auto to = MakeCheckedCudaDevice({DeviceKind::kCuda, 1}, 1, 1 << 20);
  ASSERT_TRUE(from.ok() && to.ok());
  const BufferRef copy = *(*to)->Allocate(kBytes), other = *(*to)->Allocate(kBytes);
  for (int i = 0; i < kCopies; ++i) {
    BufferRef source = *(*from)->Allocate(kBytes);
    for (int work = 0; work < 5; ++work) {
      ASSERT_TRUE((*to)->CopyFrom(*other, *copy, kBytes).ok());
    }
    InjectFailure({"cudaEventRecord", 1, cudaErrorUnknown});
    EXPECT_FALSE((*to)->CopyFrom(*copy, *source, kBytes).ok());
    InjectFailure({});
    source.reset();
  }
  EXPECT_TRUE((*to)->Check().ok());
}

// The delays let the copy run after the call has returned, if the call doesn't wait for it.
TEST_F(InjectedFailureTest, AFailedUploadFromRegisteredMemoryDoesNotReadItAfterwards) {
  constexpr int64_t kBytes = 4096;
  constexpr int kUploads = 5;
  cuda_emulation::TheOptions().max_delay_us = 10000;
  auto device = MakeCheckedCudaDevice({DeviceKind::kCuda, 0}, 0, 1 << 20);
  ASSERT_TRUE(device.ok()) << device.status();
  void* data = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  auto memory = std::make_unique<HostMemory>(data, kBytes);
  for (int i = 0; i < kUploads; ++i) {
    for (const char* call : {"cudaEventRecord", "cudaEventQuery"}) {
      const BufferRef buffer = *(*device)->AllocateForTransfer(kBytes);
      std::memset(data, 'a', kBytes);
      InjectFailure({call, 1, cudaErrorUnknown});
      (*device)->WriteFrom(*buffer, 0, *memory, 0, kBytes).IgnoreError();
      EXPECT_EQ(InjectedFailures(), 1);
      InjectFailure({});
      std::memset(data, 'z', kBytes);
      std::string received(kBytes, '\0');
      EXPECT_TRUE((*device)->Read(*buffer, 0, received.data(), kBytes).ok());
      EXPECT_EQ(received, std::string(kBytes, 'a')) << call;
    }
  }
  memory.reset();
  munmap(data, kBytes);
}

// Without a copy in the upload stream, only the allocation there orders the free. The delays let
// the compute stream reach the free first, if nothing orders it.
TEST_F(InjectedFailureTest, MemoryOfAFailedUploadIsFreedAfterItsAllocation) {
  constexpr int64_t kBytes = 1000;
  constexpr int kUploads = 20;
  cuda_emulation::TheOptions().max_delay_us = 3000;
  auto device = MakeCheckedCudaDevice({DeviceKind::kCuda, 0}, 0, 1 << 20);
  ASSERT_TRUE(device.ok()) << device.status();
  const std::string values(kBytes, 'a');
  for (int i = 0; i < kUploads; ++i) {
    const BufferRef buffer = *(*device)->AllocateForTransfer(kBytes);
    InjectFailure({"copy", 1, cudaErrorUnknown});
    EXPECT_FALSE((*device)->Write(*buffer, 0, values.data(), kBytes).ok());
    InjectFailure({});
  }
  EXPECT_TRUE((*device)->Check().ok());
}

TEST_F(InjectedFailureTest, OutOfMemory) {
  for (const char* call : {"cudaMalloc", "cudaHostAlloc"}) {
    Sweep({call, cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation"});
  }
  // The backend trims its pools and tries again, so it recovers from a single failure.
  Sweep({"cudaMallocFromPoolAsync", cudaErrorMemoryAllocation, ""});
  Sweep({"cudaMallocFromPoolAsync", cudaErrorMemoryAllocation, "emory", /*times=*/2});
  Sweep({"cudaMallocFromPoolAsync", cudaErrorUnknown, "cudaErrorUnknown"});
}

TEST_F(InjectedFailureTest, OutOfMemoryAtEveryLimit) {
  constexpr int64_t kFirstBytes = int64_t{30} << 20, kStepBytes = int64_t{512} << 10;
  constexpr int kMaxSteps = 100;
  for (int step = 0; step < kMaxSteps; ++step) {
    cuda_emulation::TheOptions().memory_bytes = kFirstBytes + step * kStepBytes;
    SCOPED_TRACE(cuda_emulation::TheOptions().memory_bytes);
    const absl::Status status = RunProgram(/*fused=*/false);
    ASSERT_EQ(cuda_emulation::LiveObjects(), "") << status;
    if (status.ok()) {
      EXPECT_GT(step, 4) << "the limits are too high";
      return;
    }
    ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  }
  FAIL() << "no limit is high enough";
}

TEST_F(InjectedFailureTest, StickyErrors) {
  Sweep({"launch", cudaErrorIllegalAddress, ""});
  Sweep({"cudaMallocFromPoolAsync", cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable"});
  Sweep({"cudaEventRecord", cudaErrorIllegalAddress, ""});
  Sweep({"cudaEventSynchronize", cudaErrorIllegalAddress, ""});
  Sweep({"copy", cudaErrorLaunchFailure, "cudaErrorLaunchFailure"});
}

TEST_F(InjectedFailureTest, PeerAccess) {
  cuda_emulation::TheOptions().peers = false;
  Sweep({"cudaDeviceCanAccessPeer", cudaErrorUnknown, ""});
}

TEST_F(InjectedFailureTest, Cublas) {
  Sweep({"cublasLtCreate", CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED"});
  for (const char* call :
       {"cublasLtMatmulDescInit_internal", "cublasLtMatmulDescSetAttribute",
        "cublasLtMatrixLayoutInit_internal", "cublasLtMatmulPreferenceInit_internal",
        "cublasLtMatmulPreferenceSetAttribute", "cublasLtMatmulAlgoGetHeuristic",
        "cublasLtMatmul"}) {
    Sweep({call, CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR"});
  }
  Sweep({"cublasLtMatmulAlgoGetHeuristic", CUBLAS_STATUS_NOT_SUPPORTED, ""});
}

TEST_F(InjectedFailureTest, Cudnn) {
  constexpr int kInternalError = 4000, kOutOfMemory = 4004;
  for (const char* call : {"cudnnCreate", "cudnnSetStream", "cudnnBackendExecute"}) {
    Sweep({call, kInternalError, call});
  }
  // Without a plan, the program computes a product of matrices.
  for (const char* call : {"cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
                           "cudnnBackendGetAttribute", "cudnnBackendFinalize"}) {
    Sweep({call, kInternalError, ""});
    Sweep({call, kOutOfMemory, call});
  }
}

TEST_F(InjectedFailureTest, FusedKernels) {
  for (const char* call :
       {"nvrtcCreateProgram", "nvrtcCompileProgram", "nvrtcGetCUBINSize", "nvrtcGetCUBIN"}) {
    Sweep({call, NVRTC_ERROR_INTERNAL_ERROR, "NVRTC", 1, kFused});
  }
  for (const char* call : {"cudaLibraryLoadData", "cudaLibraryGetKernel"}) {
    Sweep({call, cudaErrorUnknown, "cudaErrorUnknown", 1, kFused});
  }
  Sweep({"a launch", cudaErrorUnknown, "cudaErrorUnknown", 1, kFused});
}

// A fused kernel that can't be compiled, or whose code the driver rejects, isn't compiled again for
// each chain of ops. If memory is missing, it is.
TEST_F(InjectedFailureTest, CompilesAgainOnlyAfterATransientFailure) {
  constexpr int kCalls = 3;
  const struct {
    const char* call;
    int error;
    int64_t failures;  // during kCalls calls of PrepareFused()
  } cases[] = {{"nvrtcCreateProgram", NVRTC_ERROR_INTERNAL_ERROR, 1},
               {"nvrtcCompileProgram", NVRTC_ERROR_COMPILATION, 1},
               {"nvrtcCompileProgram", NVRTC_ERROR_INVALID_OPTION, 1},
               {"nvrtcGetCUBIN", NVRTC_ERROR_INTERNAL_ERROR, 1},
               {"cudaLibraryLoadData", cudaErrorNoKernelImageForDevice, 1},
               {"cudaLibraryLoadData", cudaErrorMemoryAllocation, kCalls}};
  const TensorSpec spec{DType::kFloat32, {8}};
  const OpPlan neg = *PlanOp("neg", {spec}, {});
  const std::vector<FusedSpec::Step> steps = {{neg.schema, &neg.attrs, {0}, DType::kFloat32},
                                              {neg.schema, &neg.attrs, {-1}, DType::kFloat32}};
  const FusedSpec fused{absl::MakeConstSpan(&spec, 1), steps, &spec};
  for (const auto& [call, error, failures] : cases) {
    SCOPED_TRACE(testing::Message() << call << ", error " << error);
    auto device = MakeCheckedCudaDevice({DeviceKind::kCuda, 0}, 0, 1 << 20);
    ASSERT_TRUE(device.ok()) << device.status();
    InjectFailure({call, 1, error, /*times=*/1000});
    for (int i = 0; i < kCalls; ++i) {
      const absl::Status status = (*device)->PrepareFused(fused).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    }
    EXPECT_EQ(InjectedFailures(), failures);
    InjectFailure({});
    EXPECT_EQ((*device)->PrepareFused(fused).ok(), failures == kCalls);
  }
}

TEST_F(InjectedFailureTest, SaysWhyNoGpuCanBeUsed) {
  const struct {
    cuda_emulation::Failure failure;
    const char* reason;
  } cases[] = {
      {{"cudaGetDeviceCount", 1, cudaErrorInsufficientDriver}, "driver too old: it supports CUDA"},
      {{"any", 1, cudaErrorInsufficientDriver, /*times=*/2}, "no NVIDIA driver found"},
      {{"cudaGetDeviceCount", 1, cudaErrorNoDevice}, "no GPU"},
      {{"cudaGetDeviceCount", 1, cudaErrorUnknown}, "driver failed: cudaErrorUnknown"}};
  for (const auto& [failure, reason] : cases) {
    InjectFailure(failure);
    std::string text;
    EXPECT_EQ(CudaDeviceCount(&text), 0);
    EXPECT_THAT(text, testing::HasSubstr(reason));
    InjectFailure(failure);
    EXPECT_EQ(CudaTotalMemory(0).status().code(), absl::StatusCode::kUnavailable);
  }
  InjectFailure({});
  EXPECT_EQ(CudaTotalMemory(100).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tensord::server
