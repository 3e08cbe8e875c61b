// Steps of packed ops on a CPU device: words for scalars and attributes, donation, views.
#include <atomic>
#include <numeric>
#include <thread>

#include "tensord/common/util/op_words.h"
#include "tensord/server/device/cpu/cpu_device.h"
#include "tensord/server/engine/packed_ops.h"
#include "tensord/tests/unit/engine/engine_fixture.h"
#include "tensord/tests/unit/engine/fake_device.h"

namespace tensord::server {
namespace {

using testing::ElementsAre;

std::vector<std::unique_ptr<Device>> OneCpu() {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(*MakeCpuDevice({DeviceKind::kCpu, 0}, int64_t{1} << 30, 1));
  return devices;
}

class PackedStepsTest : public testing::Test {
 protected:
  absl::Status Upload(Handle handle, const std::vector<int64_t>& values) {
    const TensorSpec spec{DType::kInt64, {static_cast<int64_t>(values.size())}};
    auto upload = engine_.BeginUpload(*session_, handle, spec, "cpu:0");
    if (!upload.ok()) return upload.status();
    const absl::Status written =
        upload->tensor->device().Write(*upload->buffer, 0, values.data(), spec.size_bytes());
    return engine_.FinishUpload(*session_, *std::move(upload), written);
  }
  absl::StatusOr<std::vector<int64_t>> Read(Handle handle) {
    absl::StatusOr<TensorRef> tensor = session_->Find(handle);
    if (!tensor.ok()) return tensor.status();
    return ReadTensor<int64_t>(engine_, *tensor);
  }
  absl::Status Apply(const std::vector<uint64_t>& words) {
    packed_.BeginBatch();
    absl::Span<const uint64_t> left = words;
    return packed_.RunBatch(
        &left, &command_,
        [this](uint64_t, Handle, uint32_t, const absl::StatusOr<TensorRefs>& made) {
          results_.push_back(made.status().code());
          return absl::OkStatus();
        });
  }

  Engine engine_{OneCpu()};
  SessionTable sessions_{{}, engine_.slots()};
  SessionRef session_ = *sessions_.Open(TestPrincipal(), kTestLeaseSeconds, "test");
  PackedOps packed_{&engine_, session_};
  uint64_t command_ = 0;
  std::vector<absl::StatusCode> results_;  // of steps that didn't run inline
};

TEST_F(PackedStepsTest, ANumberCanBeDefinedAgain) {
  ASSERT_TRUE(Upload(1, {1, -2}).ok());
  // Far more bytes than the definitions of a stream may have at once.
  const Attributes large{{"data", Bytes{std::string(4 << 20, 'x')}}};
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(packed_.Define(1, {"neg", large, "", 1}).ok());
  ASSERT_TRUE(packed_.Define(1, {"neg", {}, "", 1}).ok());
  ASSERT_TRUE(Apply({1, 2, 1}).ok());
  ASSERT_TRUE(packed_.Define(1, {"abs", {}, "", 1}).ok());
  ASSERT_TRUE(Apply({1, 3, 2}).ok());
  EXPECT_THAT(*Read(2), ElementsAre(-1, 2));
  EXPECT_THAT(*Read(3), ElementsAre(1, 2));
}

// A program of many steps runs, and within it short ops of another session, which use the same
// prepared op. The results are those without the other session.
TEST_F(PackedStepsTest, ShortOpsWithinAProgramKeepTheirOperands) {
  constexpr int64_t kSide = 24;
  constexpr uint32_t kSteps = 60000;
  const TensorSpec matrix{DType::kInt64, {kSide, kSide}};
  const Attributes axis{{"axis", int64_t{0}}};
  const auto make = [&](const SessionRef& session, int64_t first) {
    std::vector<int64_t> values(kSide * kSide);
    std::iota(values.begin(), values.end(), first);
    auto upload = engine_.BeginUpload(*session, 1, matrix, "cpu:0");
    ASSERT_TRUE(upload.ok()) << upload.status();
    const absl::Status written =
        upload->tensor->device().Write(*upload->buffer, 0, values.data(), matrix.size_bytes());
    ASSERT_TRUE(engine_.FinishUpload(*session, *std::move(upload), written).ok());
  };
  const SessionRef other = *sessions_.Open(TestPrincipal("other"), kTestLeaseSeconds, "other");
  const auto sums_of_other = [&] {
    const auto sums =
        engine_.Run(other, {.op = "cumsum", .inputs = {1}, .output = 2, .attrs = axis});
    EXPECT_TRUE(sums.ok()) << sums.status();
    auto values = *ReadTensor<int64_t>(engine_, *sums);
    other->Drop({2});
    return values;
  };
  ASSERT_TRUE(packed_.Define(1, {"cumsum", axis, "", 1}).ok());
  std::vector<uint32_t> steps;
  for (uint32_t i = 0; i < kSteps; ++i) steps.insert(steps.end(), {1, i});
  ASSERT_TRUE(packed_.AddProgram(1, "cpu:0", {matrix}, steps, {kSteps}).ok());
  make(session_, 1);
  make(other, 1000);
  const std::vector<int64_t> sums = sums_of_other();
  ASSERT_TRUE(packed_.RunProgram(1, {1}, {2}).ok());
  const std::vector<int64_t> expected = *Read(2);
  int within = 0;
  for (Handle result = 3; result < 30; ++result) {
    ASSERT_TRUE(packed_.RunProgram(1, {1}, {result}).ok());
    const TensorRef tensor = *session_->Find(result);
    while (!tensor->done()) {
      ASSERT_EQ(sums_of_other(), sums);
      if (!tensor->done()) ++within;
    }
    ASSERT_EQ(*Read(result), expected);
  }
  EXPECT_GT(within, 0);
}

// A device whose kernels say that they run inline, but take longer.
class UnderestimatingDevice final : public FakeDevice {
 public:
  UnderestimatingDevice() : FakeDevice(0, {}) {}
  absl::StatusOr<std::unique_ptr<PreparedKernel>> Prepare(const KernelSpec&) override {
    return std::make_unique<SlowKernel>(this);
  }
  // Returns how many launches other threads than the caller's have made.
  int launches_elsewhere() const { return launches_elsewhere_.load(); }

 private:
  class SlowKernel final : public PreparedKernel {
   public:
    explicit SlowKernel(UnderestimatingDevice* device) : device_(device) { runs_inline_ = true; }
    absl::Status Launch(const LaunchContext&, absl::Span<const Buffer* const>,
                        absl::Span<Buffer* const>) override {
      const int64_t end = InlineWatch::ProcessorTime() + 2 * InlineWatch::kMaxInlineNanoseconds;
      while (InlineWatch::ProcessorTime() < end) {
      }
      if (std::this_thread::get_id() != device_->caller_) device_->launches_elsewhere_.fetch_add(1);
      return absl::OkStatus();
    }

   private:
    UnderestimatingDevice* const device_;
  };

  const std::thread::id caller_ = std::this_thread::get_id();
  std::atomic<int> launches_elsewhere_{0};
};

TEST(SlowInlineOpTest, PostsOpAfterItWasSlowInline) {
  for (const bool packed : {true, false}) {
    SCOPED_TRACE(packed);
    auto made = std::make_unique<UnderestimatingDevice>();
    const UnderestimatingDevice& device = *made;
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(std::move(made));
    Engine engine(std::move(devices));
    SessionTable sessions({}, engine.slots());
    const SessionRef session = *sessions.Open(TestPrincipal(), kTestLeaseSeconds, "test");
    PackedOps packed_ops(&engine, session);
    ASSERT_TRUE(
        engine
            .Run(session, {.op = "ones",
                           .output = 1,
                           .attrs = {{"dtype", DType::kInt64}, {"shape", std::vector<int64_t>{2}}},
                           .device = "cpu:0"})
            .ok());
    ASSERT_TRUE(packed_ops.Define(1, {"neg", {}, "", 1}).ok());
    constexpr int kOps = 20;
    for (Handle result = 2; result < 2 + kOps; ++result) {
      if (!packed) {
        ASSERT_TRUE(engine.Run(session, {.op = "neg", .inputs = {1}, .output = result}).ok());
      } else {
        packed_ops.BeginBatch();
        const std::vector<uint64_t> words = {1, result, result - 1};
        absl::Span<const uint64_t> left = words;
        uint64_t command = 0;
        ASSERT_TRUE(
            packed_ops
                .RunBatch(&left, &command,
                          [](uint64_t, Handle, uint32_t, const auto&) { return absl::OkStatus(); })
                .ok());
      }
      ASSERT_TRUE(Eventually([&] { return (*session->Find(result))->done(); }));
    }
    EXPECT_GE(device.launches_elsewhere(), kOps - 3);
  }
}

TEST_F(PackedStepsTest, StepsHaveNumbersAsInputs) {
  ASSERT_TRUE(Upload(1, {5, 6}).ok());
  OpDefinition sub = {.op = "sub", .num_inputs = 2, .scalars = {{0, DType::kInt64}}};
  ASSERT_TRUE(packed_.Define(1, sub).ok());
  ASSERT_TRUE(Apply({1, 2, IntToWord(-10), 1}).ok());
  EXPECT_THAT(*Read(2), ElementsAre(-15, -16));
  // Without a tensor, the op has no device.
  sub.scalars.push_back({1, DType::kInt64});
  ExpectError(packed_.Define(2, sub), absl::StatusCode::kInvalidArgument, {"only scalars"});
}

TEST_F(PackedStepsTest, StepsHaveAttributesAsWords) {
  ASSERT_TRUE(Upload(1, {10, 11, 12, 13}).ok());
  OpDefinition slice = {.op = "slice", .num_inputs = 1};
  slice.word_attrs = {{"starts", AttrType::kInts}, {"stops", AttrType::kInts}};
  ASSERT_TRUE(packed_.Define(1, slice).ok());
  ASSERT_TRUE(Apply({1, 2, 1, 1, IntToWord(1), 1, IntToWord(-1),  //
                     1, 1, 2, 1, IntToWord(0), 1, IntToWord(1)})
                  .ok());
  EXPECT_THAT(*Read(2), ElementsAre(11, 12));
  EXPECT_THAT(*Read(3), ElementsAre(10));
  for (const std::vector<uint64_t>& words : std::vector<std::vector<uint64_t>>{
           {1, 4, 3}, {1, 4, 3, 2, 0}, {1, 4, 3, 1, 0}, {1, 4, 3, ~uint64_t{0}, 0, 0}}) {
    ExpectError(Apply(words), absl::StatusCode::kInvalidArgument, {"middle"});
  }
}

TEST_F(PackedStepsTest, DonatedInputsAreRemovedAndReused) {
  ASSERT_TRUE(Upload(1, {1, 2}).ok());
  OpDefinition neg = {.op = "neg", .num_inputs = 1, .donate = {0}};
  ASSERT_TRUE(packed_.Define(1, neg).ok());
  const void* const memory = (*session_->Find(1))->buffer()->data();
  ASSERT_TRUE(Apply({1, 2, 1}).ok());
  EXPECT_THAT(*Read(2), ElementsAre(-1, -2));
  ExpectError(Read(1), absl::StatusCode::kNotFound, {"1"});
  EXPECT_EQ((*session_->Find(2))->buffer()->data(), memory);
}

TEST_F(PackedStepsTest, RefusedOpKeepsItsDonatedInputs) {
  ASSERT_TRUE(Upload(1, {1, 2}).ok());
  ASSERT_TRUE(Upload(2, {1, 2, 3}).ok());
  OpDefinition add = {.op = "add", .num_inputs = 2, .donate = {0, 1}};
  ASSERT_TRUE(packed_.Define(1, add).ok());
  ASSERT_TRUE(Apply({1, 3, 2, 1}).ok());
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_EQ(results_[0], absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(*Read(1), ElementsAre(1, 2));
  EXPECT_THAT(*Read(2), ElementsAre(1, 2, 3));
}

TEST_F(PackedStepsTest, TensorDonatedTwiceOrPublishedIsCopied) {
  ASSERT_TRUE(Upload(1, {1, 2}).ok());
  const TensorRef shared = *session_->Find(1);
  OpDefinition add = {.op = "add", .num_inputs = 2, .donate = {0, 1}};
  ASSERT_TRUE(packed_.Define(1, add).ok());
  ASSERT_TRUE(Apply({1, 3, 2, 2}).ok());
  EXPECT_THAT(*Read(3), ElementsAre(2, 4));
  ExpectError(Read(1), absl::StatusCode::kNotFound, {"1"});
  EXPECT_EQ(static_cast<const int64_t*>(shared->buffer()->data())[1], 2) << "it has a reader";
}

// If the output's handle is in use, the op must not overwrite its input.
TEST_F(PackedStepsTest, RefusedInlineOpDoesNotOverwriteItsDonatedInput) {
  ASSERT_TRUE(Upload(1, {1, 2}).ok());
  ASSERT_TRUE(Upload(5, {0, 0}).ok());
  OpDefinition neg = {.op = "neg", .num_inputs = 1, .donate = {0}};
  ASSERT_TRUE(packed_.Define(1, neg).ok());
  ASSERT_TRUE(packed_.Define(2, {"abs", {}, "", 1}).ok());
  ASSERT_TRUE(Apply({2, 3, 2, 1, 2, 4, 1, 0, 0}).ok());  // 5 = -1, and 5 = -5
  EXPECT_THAT(*Read(1), ElementsAre(1, 2));
  EXPECT_THAT(*Read(5), ElementsAre(0, 0));
}

// Each view keeps only the owner of the memory alive.
TEST_F(PackedStepsTest, ViewsOfViewsFormNoChain) {
  constexpr int64_t kSteps = 1000000;
  ASSERT_TRUE(Upload(1, std::vector<int64_t>(kSteps + 64)).ok());
  OpDefinition slice = {.op = "slice", .num_inputs = 1, .donate = {0}};
  slice.word_attrs = {{"starts", AttrType::kInts}, {"stops", AttrType::kInts}};
  ASSERT_TRUE(packed_.Define(1, slice).ok());
  std::vector<uint64_t> words;
  for (int i = 0; i < kSteps; ++i) {
    words.insert(words.end(), {1, i == 0 ? 2u : 1u, 1, 1, IntToWord(0), 1, IntToWord(-1)});
  }
  ASSERT_TRUE(Apply(words).ok());
  const Handle last = kSteps + 1;
  EXPECT_EQ((*session_->Find(last))->spec().shape, Shape({64}));
  session_->Drop({last});
  EXPECT_EQ(engine_.slots()[0]->device->memory().used_bytes, 0);
}

// The steps after the first one run inline.
TEST_F(PackedStepsTest, StepsRunInlineWithScalarsAndDonation) {
  ASSERT_TRUE(Upload(1, {1, 2}).ok());
  OpDefinition mul = {.op = "mul", .num_inputs = 2, .donate = {0}, .scalars = {{1, DType::kInt64}}};
  ASSERT_TRUE(packed_.Define(1, mul).ok());
  ASSERT_TRUE(Apply({1, 2, 1, IntToWord(3), 1, 1, 1, IntToWord(-2)}).ok());
  EXPECT_LE(results_.size(), 1u);
  EXPECT_THAT(*Read(3), ElementsAre(-6, -12));
  ExpectError(Read(1), absl::StatusCode::kNotFound, {"1"});
  ExpectError(Read(2), absl::StatusCode::kNotFound, {"2"});
}

TEST_F(PackedStepsTest, SliceOfARangeSharesMemory) {
  std::vector<int64_t> values(32);
  for (int i = 0; i < 32; ++i) values[i] = i;
  ASSERT_TRUE(Upload(1, values).ok());
  OpDefinition slice = {.op = "slice", .num_inputs = 1};
  slice.word_attrs = {{"starts", AttrType::kInts}, {"stops", AttrType::kInts}};
  ASSERT_TRUE(packed_.Define(1, slice).ok());
  ASSERT_TRUE(packed_.Define(2, {"neg", {}, "", 1, 1, {0}}).ok());
  ASSERT_TRUE(Apply({1, 2, 1, 1, IntToWord(8), 1, IntToWord(10),  // aligned: a view
                     1, 1, 2, 1, IntToWord(9), 1, IntToWord(11)})
                  .ok());  // a copy
  const auto address = [&](Handle handle) {
    return static_cast<const char*>((*session_->Find(handle))->buffer()->data());
  };
  EXPECT_EQ(address(2), address(1) + 64);
  EXPECT_NE(address(3), address(1) + 72);
  // A view outlives the tensor that it is a part of, and an op never overwrites either.
  ASSERT_TRUE(Apply({0, ~Handle{0}, 2, 4, 2}).ok());
  EXPECT_THAT(*Read(4), ElementsAre(-8, -9));
  EXPECT_THAT(*Read(3), ElementsAre(9, 10));
  EXPECT_EQ(engine_.slots()[0]->device->memory().used_bytes, 32) << "tensors 3 and 4";
}

}  // namespace
}  // namespace tensord::server
