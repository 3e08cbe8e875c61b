// A device that is lost by a fault and restarts with a new backend device.
#include "tensord/server/device/restartable_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensord/common/ops/op_schema.h"
#include "tensord/server/device/device_factory.h"
#include "tensord/server/device/fault/fault_plan.h"
#include "tensord/tests/test_launch.h"

namespace tensord::server {
namespace {

using Code = absl::StatusCode;
using testing::HasSubstr;

constexpr int64_t kLimitBytes = 64 << 20;

class RestartableDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    auto requests = ParseDevices("faulty:cpu=64MiB");
    ASSERT_TRUE(requests.ok()) << requests.status();
    auto devices = MakeDevices(*requests, 1, &faults_);
    ASSERT_TRUE(devices.ok()) << devices.status();
    device_ = std::move(devices->front());
    device_->BindThread();
  }

  RestartableDevice& restartable() { return *device_->restartable(); }
  void Order(const std::string& order) { ASSERT_TRUE(faults_.Apply("cpu:0 " + order).ok()); }

  absl::Status AbandonAndRestart() {
    restartable().Abandon();
    return restartable().Restart();
  }

  std::unique_ptr<PreparedKernel> PrepareNeg() {
    const Attributes attrs;
    auto kernel = device_->Prepare(
        {FindOp("neg"), &attrs, absl::MakeConstSpan(&spec_, 1), absl::MakeConstSpan(&spec_, 1)});
    return kernel.ok() ? *std::move(kernel) : nullptr;
  }

  // Runs the kernel on ones. Returns the first element of its output, or the error.
  absl::StatusOr<float> RunOn(PreparedKernel& kernel) {
    auto in = device_->Allocate(spec_.size_bytes());
    if (!in.ok()) return in.status();
    auto out = device_->Allocate(spec_.size_bytes());
    if (!out.ok()) return out.status();
    const std::vector<float> ones(spec_.num_elements(), 1);
    absl::Status status = device_->Write(**in, 0, ones.data(), spec_.size_bytes());
    const Buffer* input = in->get();
    if (status.ok()) {
      status =
          kernel.Launch(TestLaunch(*device_).context(), absl::MakeConstSpan(&input, 1), out->get());
    }
    float first = 0;
    if (status.ok()) status = device_->Read(**out, 0, &first, sizeof(first));
    if (!status.ok()) return status;
    return first;
  }

  const TensorSpec spec_{DType::kFloat32, {16}};
  FaultPlans faults_;
  std::unique_ptr<Device> device_;
};

TEST_F(RestartableDeviceTest, BehavesLikeItsBackendDevice) {
  EXPECT_EQ(device_->name().ToString(), "cpu:0");
  EXPECT_TRUE(device_->host_accessible());
  EXPECT_TRUE(device_->health().serving());
  EXPECT_EQ(device_->memory().limit_bytes, kLimitBytes);
  const auto kernel = PrepareNeg();
  ASSERT_NE(kernel, nullptr);
  EXPECT_TRUE(kernel->runs_inline());
  EXPECT_EQ(kernel->in_place(0), 0);
  EXPECT_EQ(*RunOn(*kernel), -1);
}

TEST_F(RestartableDeviceTest, FailedAllocationLosesNothing) {
  Order("alloc 2");
  EXPECT_TRUE(device_->Allocate(8).ok());
  EXPECT_EQ(device_->Allocate(8).status().code(), Code::kResourceExhausted);
  EXPECT_TRUE(device_->Allocate(8).ok());
  restartable().Poll();
  EXPECT_TRUE(device_->health().serving());
}

TEST_F(RestartableDeviceTest, FaultLosesTheWholeDevice) {
  const auto kernel = PrepareNeg();
  const BufferRef before = *device_->Allocate(1000);
  EXPECT_EQ(before->device().loss(), nullptr);
  Order("kernel 1");
  const auto result = RunOn(*kernel);
  EXPECT_EQ(result.status().code(), Code::kDataLoss);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("cpu:0"));
  EXPECT_EQ(device_->health().state, DeviceState::kLost);
  ASSERT_NE(before->device().loss(), nullptr);
  EXPECT_EQ(before->device().loss()->code(), Code::kDataLoss);
  char byte = 0;
  EXPECT_EQ(device_->Read(*before, 0, &byte, 1).code(), Code::kDataLoss);
  EXPECT_EQ(device_->Allocate(8).status().code(), Code::kDataLoss);
  absl::Status fenced;
  device_->Fence([&](absl::Status status) { fenced = std::move(status); });
  EXPECT_EQ(fenced.code(), Code::kDataLoss);
}

TEST_F(RestartableDeviceTest, RestartsEmptyAndWorks) {
  const auto kernel = PrepareNeg();
  BufferRef before = *device_->Allocate(1000);
  Order("die");
  restartable().Poll();
  EXPECT_EQ(device_->health().state, DeviceState::kLost);
  EXPECT_THAT(device_->health().reason, HasSubstr("died"));
  restartable().Abandon();
  EXPECT_EQ(device_->health().state, DeviceState::kResetting);
  EXPECT_EQ(device_->Allocate(8).status().code(), Code::kDataLoss);
  ASSERT_TRUE(restartable().Restart().ok());
  EXPECT_TRUE(device_->health().serving());
  EXPECT_EQ(device_->health().restarts, 1);
  EXPECT_EQ(device_->health().losses, 1);
  EXPECT_EQ(device_->memory().used_bytes, 0);
  EXPECT_GE(device_->memory().peak_bytes, 1000);
  EXPECT_EQ(*RunOn(*kernel), -1);  // the kernel is prepared again
  // A buffer from before the loss stays lost. Its bytes don't count, even when it is freed.
  char byte = 0;
  EXPECT_EQ(device_->Read(*before, 0, &byte, 1).code(), Code::kDataLoss);
  const BufferRef after = *device_->Allocate(10);
  EXPECT_EQ(device_->memory().used_bytes, 10);
  before.reset();
  EXPECT_EQ(device_->memory().used_bytes, 10);
}

TEST_F(RestartableDeviceTest, StaysLostIfItsRestartFails) {
  Order("no-return 1");
  Order("die");
  restartable().Poll();
  EXPECT_FALSE(AbandonAndRestart().ok());
  EXPECT_EQ(device_->health().state, DeviceState::kLost);
  EXPECT_THAT(device_->health().reason, HasSubstr("the restart failed"));
  EXPECT_THAT(device_->health().reason, HasSubstr("died"));
  EXPECT_TRUE(AbandonAndRestart().ok());
  EXPECT_TRUE(device_->health().serving());
}

TEST_F(RestartableDeviceTest, KernelsAndBuffersMayBeFreedAtAnyTime) {
  auto kernel = PrepareNeg();
  auto other = PrepareNeg();
  BufferRef buffer = *device_->Allocate(1 << 20);
  Order("die");
  restartable().Poll();
  kernel.reset();
  ASSERT_TRUE(AbandonAndRestart().ok());
  buffer.reset();
  other.reset();
  EXPECT_EQ(device_->memory().used_bytes, 0);
}

TEST(FaultPlanTest, RejectsInvalidOrders) {
  FaultPlan plan({DeviceKind::kCpu, 0});
  for (const char* order : {"", "kernel", "kernel x", "kernel -1", "delay-alloc 5", "nap 3"}) {
    EXPECT_EQ(plan.Apply(order).code(), Code::kInvalidArgument) << order;
  }
  FaultPlans plans;
  EXPECT_EQ(plans.Apply("cpu:0 die").code(), Code::kNotFound);
}

TEST(ParseFaultyDevices, OnlyCpusMayBeFaulty) {
  const auto requests = ParseDevices("cpu,faulty:cpu=1KiB");
  ASSERT_TRUE(requests.ok());
  EXPECT_FALSE((*requests)[0].faulty);
  EXPECT_TRUE((*requests)[1].faulty);
  EXPECT_EQ((*requests)[1].limit_bytes, 1024);
  EXPECT_FALSE(ParseDevices("faulty:cuda:0").ok());
  EXPECT_EQ(MakeDevices(*requests, 1).status().code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace tensord::server
