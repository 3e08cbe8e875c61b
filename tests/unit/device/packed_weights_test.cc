// Weights that are multiplied repeatedly are kept packed, as long as there is enough memory.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "tensord/common/ops/op_schema.h"
#include "tensord/server/device/cpu/cpu_device.h"
#include "tensord/server/device/stop_token.h"
#include "tensord/tests/expect_error.h"
#include "tensord/tests/test_launch.h"
#include "tensord/tests/unit/device/op_runner.h"

namespace tensord::server {
namespace {

constexpr int64_t kLimitBytes = 16 << 20;
constexpr int64_t kRows = 8, kIn = 512, kOut = 1024;
constexpr int64_t kWeightBytes = kIn * kOut * 4;

class PackedWeightsTest : public ::testing::Test {
 protected:
  PackedWeightsTest() {
    device_->BindThread();
    x_ = Upload(Spread(DType::kFloat32, {kRows, kIn}, -1, 1, 1));
    weight_ = Upload(Spread(DType::kFloat32, {kOut, kIn}, -1, 1, 2));
    const std::vector<TensorSpec> specs = {{DType::kFloat32, {kRows, kIn}},
                                           {DType::kFloat32, {kOut, kIn}}};
    plan_ = *PlanOp("linear", specs, {});
    kernel_ = *device_->Prepare({plan_.schema, &plan_.attrs, specs, plan_.outputs});
  }

  BufferRef Upload(const HostTensor& tensor) {
    BufferRef buffer = *device_->Allocate(tensor.spec.size_bytes());
    EXPECT_TRUE(device_->Write(*buffer, 0, tensor.bytes.data(), tensor.spec.size_bytes()).ok());
    return buffer;
  }

  std::vector<float> Multiply() {
    const BufferRef y = *device_->Allocate(plan_.output().size_bytes());
    const Buffer* const inputs[] = {x_.get(), weight_.get()};
    EXPECT_TRUE(kernel_->Launch(TestLaunch(*device_).context(), inputs, y.get()).ok());
    std::vector<float> result(kRows * kOut);
    EXPECT_TRUE(device_->Read(*y, 0, result.data(), y->size_bytes()).ok());
    return result;
  }

  // Multiplies often enough that the weight is packed. Returns false if the library uses no packed
  // layout on this processor.
  bool MultiplyUntilPacked() {
    const int64_t before = device_->memory().used_bytes;
    for (int i = 0; i < 3; ++i) Multiply();
    return device_->memory().used_bytes > before;
  }

  const std::unique_ptr<Device> device_ = *MakeCpuDevice({DeviceKind::kCpu, 0}, kLimitBytes, 2);
  BufferRef x_, weight_;
  OpPlan plan_;
  std::unique_ptr<PreparedKernel> kernel_;
};

TEST_F(PackedWeightsTest, OpThatStopsLeavesNoIncompleteCopy) {
  const std::vector<float> expected = Multiply();
  Multiply();
  const std::atomic<bool> stop = true;
  const StopToken token = {.flags = {&stop}};
  const int64_t before = device_->memory().used_bytes;
  {
    const StopScope scope(&token);
    const BufferRef y = *device_->Allocate(plan_.output().size_bytes());
    const Buffer* const inputs[] = {x_.get(), weight_.get()};
    ExpectError(kernel_->Launch(TestLaunch(*device_).context(), inputs, y.get()),
                absl::StatusCode::kCancelled);
  }
  EXPECT_EQ(device_->memory().used_bytes, before);
  const std::vector<float> again = Multiply();
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(again[i], expected[i], 1e-4) << i;
}

TEST_F(PackedWeightsTest, GiveTheSameValuesAndCountAsMemory) {
  const int64_t before = device_->memory().used_bytes;
  const std::vector<float> expected = Multiply();
  EXPECT_EQ(device_->memory().used_bytes, before);
  if (!MultiplyUntilPacked()) GTEST_SKIP() << "nothing is packed on this processor";
  EXPECT_GE(device_->memory().used_bytes, before + kWeightBytes);
  EXPECT_LT(device_->memory().peak_bytes, before + kWeightBytes) << "of tensors";
  const std::vector<float> packed = Multiply();
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(packed[i], expected[i], 1e-4) << i;
  weight_.reset();
  EXPECT_EQ(device_->memory().used_bytes, before - kWeightBytes);
}

TEST_F(PackedWeightsTest, AreFreedForOtherAllocations) {
  const int64_t before = device_->memory().used_bytes;
  const std::vector<float> expected = Multiply();
  if (!MultiplyUntilPacked()) GTEST_SKIP() << "nothing is packed on this processor";
  const absl::StatusOr<BufferRef> all = device_->Allocate(kLimitBytes - before);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(device_->memory().used_bytes, kLimitBytes);
}

TEST_F(PackedWeightsTest, AreNotMadeWithoutMemory) {
  const int64_t left = kLimitBytes - device_->memory().used_bytes;
  const BufferRef ballast = *device_->Allocate(left - kWeightBytes / 2);
  const int64_t before = device_->memory().used_bytes;
  const std::vector<float> expected = Multiply();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Multiply(), expected);
  EXPECT_EQ(device_->memory().used_bytes, before);
}

TEST_F(PackedWeightsTest, AreUpdatedAfterTheBufferIsWritten) {
  if (!MultiplyUntilPacked()) GTEST_SKIP() << "nothing is packed on this processor";
  const TensorSpec spec = {DType::kFloat32, {kOut, kIn}};
  const OpPlan neg = *PlanOp("neg", {spec}, {});
  const std::vector<TensorSpec> specs = {spec};
  const auto kernel = *device_->Prepare({neg.schema, &neg.attrs, specs, neg.outputs});
  ASSERT_EQ(kernel->in_place(0), 0);
  const std::vector<float> before = Multiply();
  const Buffer* const inputs[] = {weight_.get()};
  ASSERT_TRUE(kernel->Launch(TestLaunch(*device_).context(), inputs, weight_.get()).ok());
  const std::vector<float> after = Multiply();
  for (size_t i = 0; i < before.size(); ++i) ASSERT_NEAR(after[i], -before[i], 1e-4) << i;
}

}  // namespace
}  // namespace tensord::server
