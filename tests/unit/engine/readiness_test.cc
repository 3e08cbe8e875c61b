// The states of an op's inputs, which decide when it may run.
#include "tensord/server/engine/readiness.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tensord/tests/unit/engine/fake_device.h"

namespace tensord::server {
namespace {

const TensorSpec kTwoElements{DType::kInt64, {2}};

class FakeOp final : public Executable {
 public:
  FakeOp(DeviceSlot* slot, bool runs_inline) : slot_(slot) { may_run_inline_ = runs_inline; }
  absl::string_view name() const override { return "fake"; }
  DeviceSlot* slot() const override { return slot_; }
  absl::StatusOr<BufferRefs> Run(MemoryAccount&, absl::Span<const TensorRef>,
                                 ValueCheckRefs*) override {
    return absl::UnimplementedError("never runs");
  }

 private:
  DeviceSlot* const slot_;
};

class ReadinessTest : public testing::Test {
 protected:
  ReadinessTest() {
    for (int i = 0; i < 2; ++i) {
      slots_[i].index = i;
      slots_[i].device = std::make_unique<FakeDevice>(i, FakeDevice::Options{});
      slots_[i].executor = std::make_unique<Executor>(slots_[i].device.get());
      lanes_[i] = slots_[i].executor->NewLane();
    }
  }

  TensorRef Pending(int device = 0) { return Tensor::Make(1, kTwoElements, &slots_[device]); }
  TensorRef Ready(int device = 0) {
    TensorRef tensor = Pending(device);
    tensor->Finish(*slots_[device].device->Allocate(kTwoElements.size_bytes()));
    return tensor;
  }
  TensorRef Failed() {
    TensorRef tensor = Pending();
    tensor->Finish(absl::InternalError("failed"));
    return tensor;
  }
  TensorRef PostedTo(int lane) {
    TensorRef tensor = Pending();
    tensor->SetPosted(lanes_[lane].get());
    return tensor;
  }

  DeviceSlot slots_[2];
  std::shared_ptr<Executor::Lane> lanes_[2];
};

TEST_F(ReadinessTest, DistinguishesInputStates) {
  const Executor::Lane* lane = lanes_[0].get();
  EXPECT_EQ(StateOf(*Pending(), lane), InputState::kPending);
  EXPECT_EQ(StateOf(*PostedTo(0), lane), InputState::kPosted);
  EXPECT_EQ(StateOf(*PostedTo(1), lane), InputState::kPending) << "another lane gives no order";
  EXPECT_EQ(StateOf(*Ready(), lane), InputState::kReady);
  EXPECT_EQ(StateOf(*Failed(), lane), InputState::kFailed);
}

TEST_F(ReadinessTest, InputsArePendingWithoutALane) {
  EXPECT_EQ(StateOf(*Pending(), nullptr), InputState::kPending);
  EXPECT_EQ(StateOf(*PostedTo(0), nullptr), InputState::kPending);
}

TEST_F(ReadinessTest, DoneTensorIsReadyThoughItWasPosted) {
  const TensorRef tensor = PostedTo(0);
  tensor->Finish(*slots_[0].device->Allocate(kTwoElements.size_bytes()));
  EXPECT_EQ(StateOf(*tensor, lanes_[0].get()), InputState::kReady);
}

TEST_F(ReadinessTest, OnlyInlineOpsWithReadyInputsRunInline) {
  const FakeOp short_op(&slots_[0], true), long_op(&slots_[0], false);
  EXPECT_TRUE(CanRunInline(short_op, {}));
  EXPECT_TRUE(CanRunInline(short_op, {Ready(), Ready()}));
  EXPECT_FALSE(CanRunInline(long_op, {Ready(), Ready()}));
  EXPECT_FALSE(CanRunInline(short_op, {Ready(), PostedTo(0)}));
  EXPECT_FALSE(CanRunInline(short_op, {Pending(), Ready()}));
}

TEST_F(ReadinessTest, OpWithFailedInputDoesNotRunInline) {
  EXPECT_FALSE(CanRunInline(FakeOp(&slots_[0], true), {Ready(), Failed()}));
}

TEST_F(ReadinessTest, FindsTheFirstInputOfAnotherSpecOrDevice) {
  const TensorSpec three{DType::kInt64, {3}};
  const std::vector<TensorRef> inputs = {Ready(0), Pending(0)};
  EXPECT_EQ(FirstMismatch({kTwoElements, kTwoElements}, &slots_[0], inputs), 2u);
  EXPECT_EQ(FirstMismatch({kTwoElements, three}, &slots_[0], inputs), 1u);
  EXPECT_EQ(FirstMismatch({kTwoElements, kTwoElements}, &slots_[1], inputs), 0u);
  EXPECT_EQ(FirstMismatch({kTwoElements, kTwoElements}, &slots_[0], {Ready(0), Ready(1)}), 1u);
}

}  // namespace
}  // namespace tensord::server
