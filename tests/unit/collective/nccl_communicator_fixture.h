// Members of a group on emulated GPUs, each on a thread of this process.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/server/device/cuda/cuda_device.h"
#include "tensord/server/device/cuda/nccl_communicator.h"
#include "tensord/server/device/memory_account.h"
#include "tensord/server/device/restartable_device.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/test_launch.h"
#include "tensord/tests/unit/cuda/checked_cuda_device.h"
#include "tensord/tests/unit/cuda/occupied_stream.h"

namespace tensord::server {

inline const TensorSpec kFour{DType::kFloat32, Shape({4})};

class NcclCommunicatorTest : public testing::Test {
 protected:
  static constexpr int64_t kLimitBytes = 1 << 20;

  void SetUp() override {
    options_ = cuda_emulation::TheOptions();
    cuda_emulation::TheOptions().devices = 3;
    for (int gpu = 0; gpu < 3; ++gpu) {
      auto device = RestartableDevice::Create(
          {[gpu] {
             return MakeCheckedCudaDevice({DeviceKind::kCuda, gpu}, gpu, kLimitBytes);
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
    const auto allocate = [&](FirstUse first_use) {
      return first_use == FirstUse::kTransfer ? device.AllocateForTransfer(kFour.size_bytes())
                                              : device.Allocate(kFour.size_bytes());
    };
    const BufferRef input = *allocate(input_use_);
    const std::vector<float> values(4, static_cast<float>(rank + 1));
    const absl::Status written = device.Write(*input, 0, values.data(), kFour.size_bytes());
    if (!written.ok()) return written;
    const BufferRef output = *allocate(output_use_);
    const CollectiveOp op = {.kind = CollectiveKind::kAllReduce, .spec = kFour};
    const absl::Status status = members_[rank]->Run(op, input.get(), output.get());
    if (!status.ok() || sum == nullptr) return status;
    return device.Read(*output, 0, sum, sizeof(*sum));
  }

  // Occupies the compute streams of the first `gpus` GPUs.
  std::vector<std::unique_ptr<OccupiedStream>> OccupyComputeStreams(int gpus) {
    std::vector<std::unique_ptr<OccupiedStream>> occupied;
    for (int gpu = 0; gpu < gpus; ++gpu) {
      const BufferRef any = *devices_[gpu]->Allocate(1);
      const cuda::DeviceGuard guard(gpu);
      occupied.push_back(std::make_unique<OccupiedStream>(ComputeStreamOf(*any)));
    }
    return occupied;
  }
  // Starts AllReduce() of each of two ranks.
  std::vector<std::future<absl::Status>> StartAllReduce() {
    std::vector<std::future<absl::Status>> sums;
    for (int rank = 0; rank < 2; ++rank) {
      sums.push_back(std::async(std::launch::async, [this, rank] { return AllReduce(rank); }));
    }
    return sums;
  }

  // Runs a kernel that reads an invalid address, so that the device is lost. Then resets the GPU
  // and restarts the device.
  absl::Status BreakAndRestart(RestartableDevice& device) {
    const BufferRef out = *device.Allocate(kFour.size_bytes());
    const Attributes attrs;
    const Operand input = {&kFour, reinterpret_cast<void*>(uintptr_t{0x1000})};
    device
        .Launch({TestLaunch(device).context(),
                 FindOp("neg"),
                 &attrs,
                 absl::MakeConstSpan(&input, 1),
                 {{&kFour, out->data()}}})
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
  // The first uses of AllReduce()'s buffers; as in the server.
  FirstUse input_use_ = FirstUse::kTransfer;
  FirstUse output_use_ = FirstUse::kTransfer;

 private:
  cuda_emulation::Options options_;
};

}  // namespace tensord::server
