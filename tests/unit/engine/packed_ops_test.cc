// Batches of ops that a stream packs into words.
#include "tensord/server/engine/packed_ops.h"

#include "tensord/tests/unit/engine/engine_fixture.h"

namespace tensord::server {
namespace {

using testing::ElementsAre;

class PackedOpsTest : public EngineFixture {
 protected:
  // Calls PackedOps::RunBatch(). Appends each reported step to results_.
  absl::Status Apply(const std::vector<uint64_t>& words) {
    packed_.BeginBatch();
    absl::Span<const uint64_t> left = words;
    return ApplyUntil(PackedOps::kNoDeadline, &left);
  }
  absl::Status ApplyUntil(std::chrono::steady_clock::time_point deadline,
                          absl::Span<const uint64_t>* left) {
    return packed_.RunBatch(
        left, &command_,
        [this](uint64_t command, Handle output, uint32_t, const absl::StatusOr<TensorRefs>& made) {
          results_.push_back({command, output, made.status().code()});
          return results_.size() < max_results_ ? absl::OkStatus()
                                                : absl::ResourceExhaustedError("enough");
        },
        deadline);
  }

  struct StepResult {
    uint64_t command;
    Handle output;
    absl::StatusCode code;
    friend bool operator==(const StepResult& a, const StepResult& b) {
      return a.command == b.command && a.output == b.output && a.code == b.code;
    }
  };

  PackedOps packed_{engine_.get(), session_};
  uint64_t command_ = 0;
  std::vector<StepResult> results_;
  size_t max_results_ = 1000;
};

TEST_F(PackedOpsTest, StepsNameHandlesByTheirDistance) {
  ASSERT_TRUE(Upload(7, {1, 2}).ok());
  ASSERT_TRUE(Upload(~Handle{0}, {10, 20}).ok());
  ASSERT_TRUE(packed_.Define(1, {"add", {}, "", 2}).ok());
  // Tensor 9 = 7 + ~0, tensor 10 = 9 + 7. Then tensor 9 is dropped.
  ASSERT_TRUE(Apply({1, 9, 2, 10, 1, 1, 1, 3, 0, 1}).ok());
  EXPECT_EQ(command_, 3u);
  EXPECT_THAT(*Read(10), ElementsAre(12, 24));
  ExpectError(Read(9), absl::StatusCode::kNotFound, {"9"});
}

// The deadline has passed already, so each call runs the least number of steps.
TEST_F(PackedOpsTest, ContinuesABatchAfterItsDeadline) {
  ASSERT_TRUE(Upload(1, {1, 2}).ok());
  ASSERT_TRUE(packed_.Define(1, {"neg", {}, "", 1}).ok());
  constexpr Handle kLast = 5000;
  max_results_ = kLast;
  std::vector<uint64_t> words;
  for (Handle handle = 2; handle <= kLast; ++handle) {
    words.insert(words.end(), {1, handle == 2 ? handle : 1, 1});
  }
  packed_.BeginBatch();
  absl::Span<const uint64_t> left = words;
  int calls = 0;
  for (; !left.empty(); ++calls) {
    const size_t before = left.size();
    ASSERT_TRUE(ApplyUntil(std::chrono::steady_clock::time_point(), &left).ok());
    ASSERT_LT(left.size(), before);
  }
  EXPECT_GT(calls, 1);
  EXPECT_EQ(command_, kLast - 1);
  EXPECT_THAT(*Read(kLast), ElementsAre(-1, -2));
}

TEST_F(PackedOpsTest, RefusedStepHarmsNoOther) {
  ASSERT_TRUE(Upload(1, {1, 2}).ok());
  ASSERT_TRUE(Upload(2, {1, 2, 3}).ok());
  ASSERT_TRUE(packed_.Define(1, {"add", {}, "", 2}).ok());
  ASSERT_TRUE(packed_.Define(2, {"no_such_op", {}, "", 1}).ok());
  ASSERT_TRUE(Apply({1, 5, 4, 3,  // shapes that don't fit
                     1, 1, 5, 3,  // 6 = 1 + 3, which isn't there
                     2, 1, 6,     // 7
                     1, 1, 7, 7})
                  .ok());  // 8 = 1 + 1
  EXPECT_EQ(command_, 4u);
  using Code = absl::StatusCode;
  ASSERT_GE(results_.size(), 3u);
  EXPECT_EQ(results_[0], (StepResult{1, 5, Code::kInvalidArgument}));
  EXPECT_EQ(results_[1], (StepResult{2, 6, Code::kNotFound}));
  EXPECT_EQ(results_[2].code, Code::kNotFound);
  EXPECT_THAT(*Read(8), ElementsAre(2, 4));
}

TEST_F(PackedOpsTest, RejectsInvalidWords) {
  ASSERT_TRUE(Upload(1, {1, 2}).ok());
  ASSERT_TRUE(packed_.Define(1, {"neg", {}, "", 1}).ok());
  for (const std::vector<uint64_t>& words :
       std::vector<std::vector<uint64_t>>{{1}, {1, 5}, {0}, {2, 5, 4}, {~uint64_t{0}, 1, 1}}) {
    ExpectError(Apply(words), absl::StatusCode::kInvalidArgument, {"packed"});
  }
  ExpectError(Apply({1, 5, 4, 1}), absl::StatusCode::kInvalidArgument, {"middle"});
  EXPECT_THAT(*Read(5), ElementsAre(-1, -2)) << "earlier steps have been applied";
}

TEST_F(PackedOpsTest, DefinitionsHaveNoGaps) {
  using Code = absl::StatusCode;
  ExpectError(packed_.Define(0, {"neg", {}, "", 1}), Code::kInvalidArgument, {"1"});
  ExpectError(packed_.Define(2, {"neg", {}, "", 1}), Code::kInvalidArgument, {"1"});
  ExpectError(packed_.Define(1, {"neg", {}, "", 5000}), Code::kInvalidArgument, {"5000"});
  ASSERT_TRUE(packed_.Define(1, {"neg", {}, "", 1}).ok());
  ExpectError(packed_.Define(3, {"neg", {}, "", 1}), Code::kInvalidArgument, {"2"});
}

TEST_F(PackedOpsTest, RejectsDefinitionsThatNameInputsTheyLack) {
  const OpDefinition neg = {.op = "neg", .num_inputs = 1};
  const auto refused = [&](auto change) {
    OpDefinition wrong = neg;
    change(wrong);
    return packed_.Define(1, wrong).code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](auto& d) { d.donate = {1}; }));
  EXPECT_TRUE(refused([](auto& d) { d.donate = {0, 0}; }));
  EXPECT_TRUE(refused([](auto& d) { d.scalars = {{1, DType::kFloat32}}; }));
  EXPECT_TRUE(refused([](auto& d) { d.scalars = {{0, DType::kFloat32}}; })) << "no tensor";
  EXPECT_TRUE(refused([](auto& d) {
    d.num_inputs = 3;
    d.scalars = {{1, DType::kFloat32}, {1, DType::kInt8}};
  }));
  EXPECT_TRUE(refused([](auto& d) {
    d.num_inputs = 2;
    d.scalars = {{1, DType::kFloat32}};
    d.donate = {1};
  }));
  EXPECT_TRUE(refused([](auto& d) {
    d.word_attrs = {{"shape", AttrType::kInts}, {"shape", AttrType::kInts}};
  }));
  EXPECT_TRUE(refused([](auto& d) { d.scalars = {{0, DType::kUnspecified}}; }));
  EXPECT_TRUE(refused([](auto& d) { d.scalars = {{0, DType::kComplex64}}; }));
  EXPECT_TRUE(refused([](auto& d) { d.num_outputs = 0; }));
  EXPECT_TRUE(refused([](auto& d) { d.num_outputs = 1000; }));
  EXPECT_TRUE(refused([](auto& d) { d.word_attrs = {{"x", AttrType::kString}}; }));
}

TEST_F(PackedOpsTest, LimitsDefinitionsAndPrograms) {
  using Code = absl::StatusCode;
  const Attributes large{{"data", Bytes{std::string(1 << 20, 'x')}}};
  uint32_t number = 0;
  absl::Status status;
  while (status.ok() && number < 100) status = packed_.Define(++number, {"neg", large, "", 1});
  ExpectError(status, Code::kResourceExhausted, {"definitions"});
  EXPECT_LE(number, 33u);

  // A program beyond the limit is refused when it is run. Other programs aren't affected.
  const std::vector<uint32_t> ops((1 << 18) - 1, 1);  // and one for the output
  for (uint32_t program = 1; program <= 5; ++program) {
    ASSERT_TRUE(packed_.AddProgram(program, "cpu:0", {}, ops, {0}).ok());
  }
  ExpectError(packed_.RunProgram(4, {}, {1}), Code::kInvalidArgument);
  ExpectError(packed_.RunProgram(5, {}, {1}), Code::kResourceExhausted, {"programs"});
  packed_.DropProgram(1);
  ASSERT_TRUE(packed_.AddProgram(6, "cpu:0", {}, ops, {0}).ok());
  ExpectError(packed_.RunProgram(6, {}, {1}), Code::kInvalidArgument);

  // Inputs and outputs count as ops do.
  for (uint32_t program = 3; program <= 6; ++program) packed_.DropProgram(program);
  const std::vector<uint32_t> outputs((1 << 20) - (1 << 18), 0);
  const std::vector<TensorSpec> inputs(2, TensorSpec{DType::kInt64, {1}});
  ASSERT_TRUE(packed_.AddProgram(7, "cpu:0", inputs, {}, outputs).ok());
  ExpectError(packed_.RunProgram(7, {}, {1}), Code::kResourceExhausted, {"programs"});
  ASSERT_TRUE(packed_.AddProgram(8, "cpu:0", {inputs[0]}, {}, {0}).ok());
  ExpectError(packed_.RunProgram(8, {}, {1}), Code::kInvalidArgument);
}

TEST_F(PackedOpsTest, StopsIfAResultCannotBeReported) {
  ASSERT_TRUE(packed_.Define(1, {"neg", {}, "", 1}).ok());
  max_results_ = 2;
  ExpectError(Apply({1, 5, 1, 1, 1, 1, 1, 1, 1}), absl::StatusCode::kResourceExhausted, {"enough"});
  EXPECT_EQ(results_.size(), 2u);
  EXPECT_EQ(command_, 2u);
}

TEST_F(PackedOpsTest, OneDefinitionServesAllShapes) {
  ASSERT_TRUE(packed_.Define(1, {"neg", {}, "", 1}).ok());
  for (int round = 0; round < 2; ++round) {
    for (Handle i = 1; i <= 10; ++i) {
      const Handle handle = round * 100 + i;
      ASSERT_TRUE(Upload(handle, std::vector<int64_t>(i, static_cast<int64_t>(i))).ok());
      ASSERT_TRUE(Apply({1, handle + 50, 50}).ok());
      EXPECT_EQ(*Read(handle + 50), std::vector<int64_t>(i, -static_cast<int64_t>(i)));
    }
  }
}

TEST_F(PackedOpsTest, RejectsInvalidProgramsWhenTheyAreRun) {
  using Code = absl::StatusCode;
  ASSERT_TRUE(packed_.Define(1, {"add", {}, "", 2}).ok());
  ASSERT_TRUE(Upload(1, {1, 2}).ok());
  const TensorSpec two{DType::kInt64, {2}};
  struct Case {
    std::vector<TensorSpec> inputs;
    std::vector<uint32_t> ops;
    std::vector<uint32_t> outputs;
    std::string device = "cpu:0";
  };
  const std::vector<Case> cases = {
      {{two}, {1, 0}, {1}},                           // cut off
      {{two}, {2, 0, 0}, {1}},                        // no such definition
      {{two}, {0, 0, 0}, {1}},                        //
      {{two}, {1, 0, 1}, {1}},                        // reads its own result
      {{two}, {1, 0, 0}, {2}},                        // no such value
      {{two}, {1, 0, 0}, {}},                         // gives nothing
      {{two, {DType::kInt64, {3}}}, {1, 0, 1}, {2}},  // shapes
      {{{DType::kInt64, {-1}}}, {1, 0, 0}, {1}},      // no shape
      {{two}, {1, 0, 0}, {1}, "cpu:9"},               // no such device
  };
  uint32_t number = 0;
  for (const Case& c : cases) {
    ASSERT_TRUE(packed_.AddProgram(++number, c.device, c.inputs, c.ops, c.outputs).ok());
    EXPECT_FALSE(packed_.RunProgram(number, {1}, {50 + number}).ok()) << number;
  }
  ExpectError(packed_.AddProgram(number, "cpu:0", {two}, {1, 0, 0}, {1}), Code::kInvalidArgument,
              {"program"});
  ASSERT_TRUE(packed_.AddProgram(++number, "cpu:0", {two}, {1, 0, 0, 1, 1, 0}, {2, 1}).ok());
  ASSERT_TRUE(packed_.RunProgram(number, {1}, {10, 11}).ok());
  EXPECT_THAT(*Read(10), ElementsAre(3, 6));
  EXPECT_THAT(*Read(11), ElementsAre(2, 4));
  ExpectError(packed_.RunProgram(number, {1}, {12}), Code::kInvalidArgument, {"outputs"});
  ExpectError(packed_.RunProgram(number, {1, 1}, {12, 13}), Code::kInvalidArgument, {"inputs"});
  ExpectError(packed_.RunProgram(number, {99}, {12, 13}), Code::kNotFound, {"99"});
  ExpectError(packed_.RunProgram(number, {1}, {12, 11}), Code::kAlreadyExists, {"11"});
  ExpectError(Read(12), Code::kNotFound, {"12"});  // all or none
  packed_.DropProgram(number);
  ExpectError(packed_.RunProgram(number, {1}, {12, 13}), Code::kNotFound, {"program"});
}

}  // namespace
}  // namespace tensord::server
