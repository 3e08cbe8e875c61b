// Members of a group on emulated GPUs, each on a thread of this process.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tensord/common/float16.h"
#include "tensord/common/op_schema.h"
#include "tensord/server/collective/nccl_communicator.h"
#include "tensord/server/device/cuda/cuda_device.h"
#include "tensord/server/device/cuda/memory_pool.h"
#include "tensord/server/device/memory_account.h"
#include "tensord/server/device/restartable_device.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/failure.h"
#include "tensord/tests/unit/cuda/occupied_stream.h"

namespace tensord::server {
namespace {

using testing::HasSubstr;

const TensorSpec kFour{DType::kFloat32, Shape({4})};

class NcclCommunicatorTest : public testing::Test {
 protected:
  static constexpr int64_t kLimitBytes = 1 << 20;

  void SetUp() override {
    options_ = cuda_emulation::TheOptions();
    cuda_emulation::TheOptions().devices = 3;
    cuda::MemoryPool::SetReuse(false);  // freed memory is inaccessible at once
    for (int gpu = 0; gpu < 3; ++gpu) {
      auto device = RestartableDevice::Create(
          {[gpu] {
             return MakeCudaDevice({DeviceKind::kCuda, gpu}, gpu, kLimitBytes);
           },
           absl::StrCat("GPU ", gpu), [gpu] { return ResetCudaDevice(gpu); }});
      ASSERT_TRUE(device.ok()) << device.status();
      devices_.push_back(*std::move(device));
    }
  }

  void TearDown() override {
    members_.clear();
    for (const auto& device : devices_) EXPECT_TRUE(device->Check().ok()) << device->Check();
    devices_.clear();
    cuda::MemoryPool::SetReuse(true);
    cuda_emulation::TheOptions() = options_;
  }

  // Calls `call` for all given ranks in parallel, and returns the statuses.
  template <typename Call>
  std::vector<absl::Status> AtOnce(const std::vector<int>& ranks, const Call& call) {
    std::vector<std::future<absl::Status>> futures;
    for (const int rank : ranks) {
      futures.push_back(std::async(std::launch::async, [&call, rank] { return call(rank); }));
    }
    std::vector<absl::Status> statuses;
    for (auto& future : futures) statuses.push_back(future.get());
    return statuses;
  }

  // Makes a member on each of the GPUs and connects the members. Returns the statuses of Connect().
  std::vector<absl::Status> ConnectOn(const std::vector<int>& gpus,
                                      std::chrono::milliseconds timeout) {
    members_.clear();
    const auto network = CollectiveNetwork::Find("127.0.0.1");
    EXPECT_TRUE(network.ok()) << network.status();
    std::vector<std::string> addresses;
    std::vector<int> ranks;
    for (const int gpu : gpus) {
      ranks.push_back(static_cast<int>(ranks.size()));
      auto member = MakeNcclCommunicator(*network, *devices_[gpu],
                                         {.rank = ranks.back(),
                                          .size = static_cast<int>(gpus.size()),
                                          .timeout = timeout,
                                          .group_id = "0123456789abcdef"});
      EXPECT_TRUE(member.ok()) << member.status();
      addresses.push_back((*member)->address());
      members_.push_back(*std::move(member));
    }
    return AtOnce(ranks, [&](int rank) { return members_[rank]->Connect(addresses); });
  }
  // Makes a group whose rank r is on GPU r.
  void Connect(int size, std::chrono::milliseconds timeout) {
    std::vector<int> gpus;
    for (int gpu = 0; gpu < size; ++gpu) gpus.push_back(gpu);
    for (const absl::Status& connected : ConnectOn(gpus, timeout)) {
      ASSERT_TRUE(connected.ok()) << connected;
    }
  }

  // Runs an all-reduce of four elements; the inputs are rank + 1. On success, sets `sum` to the
  // first element of the output. Frees its buffers when it returns, as the server does.
  absl::Status AllReduce(int rank, float* sum = nullptr) {
    Device& device = *devices_[rank];
    const auto allocate = [&] {
      return first_use_ == FirstUse::kTransfer ? device.AllocateForTransfer(kFour.size_bytes())
                                               : device.Allocate(kFour.size_bytes());
    };
    const BufferRef input = *allocate();
    const BufferRef output = *allocate();
    const std::vector<float> values(4, static_cast<float>(rank + 1));
    const absl::Status written = device.Write(*input, 0, values.data(), kFour.size_bytes());
    if (!written.ok()) return written;
    const CollectiveOp op = {.kind = CollectiveKind::kAllReduce, .spec = kFour};
    const absl::Status status = members_[rank]->Run(op, input.get(), output.get());
    if (!status.ok() || sum == nullptr) return status;
    return device.Read(*output, 0, sum, sizeof(*sum));
  }

  // Runs a kernel that reads an invalid address, so that the device is lost. Then resets the GPU
  // and restarts the device.
  absl::Status BreakAndRestart(RestartableDevice& device) {
    const BufferRef out = *device.Allocate(kFour.size_bytes());
    const Attributes attrs;
    const Operand input = {&kFour, reinterpret_cast<void*>(uintptr_t{0x1000})};
    device.Launch({FindOp("neg"), &attrs, absl::MakeConstSpan(&input, 1), {&kFour, out->data()}})
        .IgnoreError();
    std::promise<absl::Status> fenced;
    device.Fence([&](absl::Status status) { fenced.set_value(std::move(status)); });
    EXPECT_EQ(fenced.get_future().get().code(), absl::StatusCode::kDataLoss);
    device.Abandon();
    cuda_emulation::ExpectReports();
    const absl::Status reset = device.Reset();
    return reset.ok() ? device.Restart() : reset;
  }

  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<Communicator>> members_;
  FirstUse first_use_ = FirstUse::kTransfer;  // of AllReduce()'s buffers; as in the server

 private:
  cuda_emulation::Options options_;
};

TEST_F(NcclCommunicatorTest, AllReducesOverThreeGpus) {
  Connect(3, std::chrono::seconds(30));
  for (int i = 0; i < 10; ++i) {
    float sums[3] = {};
    for (const absl::Status& status :
         AtOnce({0, 1, 2}, [&](int rank) { return AllReduce(rank, &sums[rank]); })) {
      ASSERT_TRUE(status.ok()) << status;
    }
    EXPECT_THAT(sums, testing::Each(6));
  }
}

// For example, a training step sums gradients while kernels compute the next ones.
TEST_F(NcclCommunicatorTest, AllReducesWhileKernelsRun) {
  Connect(2, std::chrono::seconds(30));
  std::vector<std::unique_ptr<OccupiedStream>> occupied;
  for (int gpu = 0; gpu < 2; ++gpu) {
    const BufferRef any = *devices_[gpu]->Allocate(1);
    const cuda::DeviceGuard guard(gpu);
    occupied.push_back(std::make_unique<OccupiedStream>(ComputeStreamOf(*any)));
  }
  std::vector<std::future<absl::Status>> sums;
  for (int rank = 0; rank < 2; ++rank) {
    sums.push_back(std::async(std::launch::async, [this, rank] { return AllReduce(rank); }));
  }
  for (auto& sum : sums) {
    EXPECT_EQ(sum.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  }
  occupied.clear();
  for (auto& sum : sums) EXPECT_TRUE(sum.get().ok());
}

// Kernels used the result's memory last, so NCCL must write to it after them.
TEST_F(NcclCommunicatorTest, AllReducesIntoMemoryOfTheComputeStream) {
  Connect(2, std::chrono::seconds(30));
  first_use_ = FirstUse::kKernel;
  cuda_emulation::TheOptions().max_delay_us = 2000;
  for (int i = 0; i < 20; ++i) {
    float sums[2] = {};
    for (const absl::Status& status :
         AtOnce({0, 1}, [&](int rank) { return AllReduce(rank, &sums[rank]); })) {
      ASSERT_TRUE(status.ok()) << status;
    }
    EXPECT_THAT(sums, testing::Each(3));
  }
}

// The members free their buffers when the operation has failed. NCCL's kernels must have ended by
// then. The delay makes an emulated kernel write late: if it writes to freed memory, the emulation
// reports that.
TEST_F(NcclCommunicatorTest, MissingMemberCausesDeadlineExceededAtAllOthers) {
  cuda_emulation::TheOptions().max_delay_us = 20000;
  Connect(3, std::chrono::milliseconds(500));
  for (const absl::Status& status : AtOnce({0, 1}, [&](int rank) { return AllReduce(rank); })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  }
}

TEST_F(NcclCommunicatorTest, MemberThatLeavesAbortsTheOthers) {
  cuda_emulation::TheOptions().max_delay_us = 20000;
  Connect(3, std::chrono::seconds(30));
  std::future<void> leaves = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the others wait by then
    members_[2].reset();
  });
  for (const absl::Status& status : AtOnce({0, 1}, [&](int rank) { return AllReduce(rank); })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2"));
  }
  leaves.get();
}

TEST_F(NcclCommunicatorTest, LostGpuAbortsItsGroupAndCanJoinAnotherAfterItsReset) {
  Connect(2, std::chrono::seconds(30));
  std::future<absl::Status> restarted = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the member waits by then
    return BreakAndRestart(*devices_[0]->AsRestartable());
  });
  const absl::Status status = AllReduce(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  const absl::Status back = restarted.get();
  ASSERT_TRUE(back.ok()) << back;
  EXPECT_EQ(members_[1]->Watch().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(AllReduce(0).code(), absl::StatusCode::kAborted);
  Connect(2, std::chrono::seconds(30));
  float sums[2] = {};
  for (const absl::Status& again :
       AtOnce({0, 1}, [&](int rank) { return AllReduce(rank, &sums[rank]); })) {
    EXPECT_TRUE(again.ok()) << again;
  }
  EXPECT_THAT(sums, testing::Each(3));
}

TEST_F(NcclCommunicatorTest, RejectsTwoMembersOnOneGpu) {
  for (const absl::Status& status : ConnectOn({0, 0}, std::chrono::seconds(30))) {
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("same GPU"));
  }
  cuda_emulation::ExpectReports();
}

// Operations of two members, each on its own GPU.
class NcclOperationTest : public NcclCommunicatorTest {
 protected:
  void TearDown() override {
    cuda_emulation::InjectFailure({});
    NcclCommunicatorTest::TearDown();
  }

  // Runs `op` on both members with `input` at each, and returns the bytes of each output.
  std::vector<std::string> RunOp(const CollectiveOp& op, const std::string& input,
                                 size_t output_bytes) {
    std::vector<std::string> outputs(2, std::string(output_bytes, '\0'));
    for (const absl::Status& status : AtOnce({0, 1}, [&](int rank) -> absl::Status {
           Device& device = *devices_[rank];
           const BufferRef out = *device.Allocate(static_cast<int64_t>(output_bytes));
           BufferRef in;
           if (op.HasInput(rank)) {
             in = *device.Allocate(static_cast<int64_t>(input.size()));
             const absl::Status written =
                 device.Write(*in, 0, input.data(), static_cast<int64_t>(input.size()));
             if (!written.ok()) return written;
           }
           const absl::Status run = members_[rank]->Run(op, in.get(), out.get());
           if (!run.ok()) return run;
           return device.Read(*out, 0, outputs[rank].data(), out->size_bytes());
         })) {
      EXPECT_TRUE(status.ok()) << op.ToString() << ": " << status;
    }
    return outputs;
  }

  template <typename T>
  static std::string Elements(size_t count, T value) {
    std::string bytes;
    for (size_t i = 0; i < count; ++i) {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
    }
    return bytes;
  }

  template <typename T>
  void CheckType(DType dtype) {
    constexpr size_t kCount = 6;
    const TensorSpec spec{dtype, Shape{kCount}};
    const std::string twos = Elements(kCount, T(2));
    const auto expect = [&](CollectiveKind kind, CollectiveReduction reduction, T value,
                            size_t count) {
      const CollectiveOp op{kind, reduction, 0, spec};
      for (const std::string& output : RunOp(op, twos, count * sizeof(T))) {
        EXPECT_EQ(output, Elements(count, value)) << op.ToString();
      }
    };
    expect(CollectiveKind::kAllReduce, CollectiveReduction::kSum, T(4), kCount);
    expect(CollectiveKind::kAllReduce, CollectiveReduction::kMax, T(2), kCount);
    if (IsFloating(dtype)) {
      expect(CollectiveKind::kAllReduce, CollectiveReduction::kMean, T(2), kCount);
    }
    expect(CollectiveKind::kReduceScatter, CollectiveReduction::kSum, T(4), kCount / 2);
    expect(CollectiveKind::kAllGather, CollectiveReduction::kSum, T(2), 2 * kCount);
    expect(CollectiveKind::kBroadcast, CollectiveReduction::kSum, T(2), kCount);
  }
};

TEST_F(NcclOperationTest, ComputesEveryOperationInEveryDType) {
  Connect(2, std::chrono::seconds(30));
  CheckType<Half>(DType::kFloat16);
  CheckType<BFloat16>(DType::kBFloat16);
  CheckType<float>(DType::kFloat32);
  CheckType<double>(DType::kFloat64);
  CheckType<int32_t>(DType::kInt32);
  CheckType<int64_t>(DType::kInt64);
}

// If a call fails, the operation fails at one member at least, and a new group works.
TEST_F(NcclOperationTest, FailsIfACallFails) {
  constexpr int kInternalError = 3;  // ncclInternalError
  const struct {
    const char* call;
    int error;
  } cases[] = {{"ncclAllReduce", kInternalError},
               {"ncclCommGetAsyncError", kInternalError},
               {"cudaLaunchHostFunc", cudaErrorUnknown},
               {"cudaStreamQuery", cudaErrorUnknown}};
  for (const auto& [call, error] : cases) {
    SCOPED_TRACE(call);
    Connect(2, std::chrono::seconds(2));
    cuda_emulation::InjectFailure({call, 1, error});
    const std::vector<absl::Status> statuses =
        AtOnce({0, 1}, [&](int rank) { return AllReduce(rank); });
    EXPECT_EQ(cuda_emulation::InjectedFailures(), 1);
    cuda_emulation::InjectFailure({});
    EXPECT_FALSE(statuses[0].ok() && statuses[1].ok());
    Connect(2, std::chrono::seconds(30));
    for (const absl::Status& status : AtOnce({0, 1}, [&](int rank) { return AllReduce(rank); })) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

TEST_F(NcclOperationTest, FailsAtBothMembersIfTheGroupCannotStart) {
  for (const char* call : {"ncclCommInitRankConfig", "cudaStreamCreateWithFlags"}) {
    SCOPED_TRACE(call);
    cuda_emulation::InjectFailure({call, 1, cudaErrorUnknown});
    for (const absl::Status& status : ConnectOn({0, 1}, std::chrono::seconds(2))) {
      EXPECT_FALSE(status.ok());
    }
    cuda_emulation::InjectFailure({});
    Connect(2, std::chrono::seconds(30));
  }
}

}  // namespace
}  // namespace tensord::server
