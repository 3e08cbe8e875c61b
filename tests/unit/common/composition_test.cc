// Formulas: what they build, and the errors of compositions.
#include "tensord/common/ops/composition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tensord/tests/unit/common/plan.h"

namespace tensord {
namespace {

using formula::Add;
using formula::Mul;
using formula::Neg;
using testing::ElementsAre;
using testing::HasSubstr;

// Runs a formula over the specs. Returns the steps' ops and results, such as "mul float32[2]".
std::vector<std::string> StepsOf(void (*run)(Formula&), const std::vector<TensorSpec>& inputs) {
  OpSchema schema;
  schema.name = "test";
  schema.formula = run;
  std::vector<const TensorSpec*> specs;
  for (const TensorSpec& input : inputs) specs.push_back(&input);
  const absl::StatusOr<Composition> built =
      Compose(schema, specs, *BoundAttributes::Bind(schema, {}));
  if (!built.ok()) return {built.status().ToString()};
  std::vector<std::string> steps;
  for (const Composition::Step& step : built->steps) {
    const std::string name = step.loop == nullptr ? step.schema->name : "loop";
    steps.push_back(name + " " + built->specs[step.result].ToString());
  }
  return steps;
}

TEST(CompositionTest, NumbersHaveTheDTypeOfTheOtherOperands) {
  const auto twice = [](Formula& f) { f.Return(Add(Mul(f.input(0), 2), 2)); };
  EXPECT_THAT(StepsOf(twice, {Of(DType::kFloat16)}),
              ElementsAre("full float16[]", "mul float16[2]", "add float16[2]"));
  EXPECT_THAT(StepsOf(twice, {Of(DType::kInt32)}),
              ElementsAre("full int32[]", "mul int32[2]", "add int32[2]"));
  const auto half = [](Formula& f) { f.Return(Mul(f.input(0), 0.5)); };
  EXPECT_THAT(StepsOf(half, {Of(DType::kFloat64)}),
              ElementsAre("full float64[]", "mul float64[2]"));
}

TEST(CompositionTest, CompositionsWithinCompositionsBecomeTheirSteps) {
  const auto mish = [](Formula& f) { f.Return(Neg(Apply("mish", {f.input(0)}))); };
  EXPECT_THAT(StepsOf(mish, {F32({2})}),
              ElementsAre("full float32[]", "logaddexp float32[2]", "tanh float32[2]",
                          "mul float32[2]", "neg float32[2]"));
}

TEST(CompositionTest, ErrorsNameTheCompositionsAndTheInnerOp) {
  EXPECT_EQ(Result("mish", {Of(DType::kInt32)}),
            "INVALID_ARGUMENT: mish: needs a floating dtype, not int32; cast to float32 first; "
            "input is int32[2]");
  EXPECT_THAT(Result("hardtanh_backward", {F32({2}), F32({3})}),
              HasSubstr("hardtanh_backward: where: shapes"));
  EXPECT_EQ(StepsOf([](Formula& f) { f.Return(Apply("mish", {f.input(0)})); }, {Of(DType::kBool)}),
            std::vector<std::string>{
                "INVALID_ARGUMENT: test: mish: needs a floating dtype, not bool; cast to float32 "
                "first; input is bool[2]"});
  EXPECT_THAT(Result("elu", {F32({2})}, {{"beta", 1.0}}), HasSubstr("elu: there is no attribute"));
}

TEST(CompositionTest, RejectsNumbersThatTheDTypeCantRepresent) {
  EXPECT_THAT(Result("hardtanh", {Of(DType::kUInt8)}), HasSubstr("hardtanh: full: "));
  EXPECT_THAT(Result("hardtanh", {Of(DType::kInt32)}, {{"max", HUGE_VAL}}),
              HasSubstr("hardtanh: full: "));
  EXPECT_THAT(StepsOf([](Formula& f) { f.Return(0); }, {F32({2})}),
              ElementsAre("INTERNAL: test: an output is a number"));
  EXPECT_THAT(StepsOf([](Formula&) {}, {F32({2})}),
              ElementsAre("INTERNAL: test: there is no output"));
}

// Adds a loop over input 0 whose state is input 1, and returns the negative of a result.
void ReturnNegative(Formula& f, size_t result, bool stacked,
                    absl::FunctionRef<Formula::LoopResults(const Formula::LoopInputs&)> round) {
  const Formula::LoopState state = {f.input(1), stacked};
  const Value sequence = f.input(0);
  const std::vector<Value> made = f.Loop({{&state, 1}, {&sequence, 1}}, round);
  if (f.ok()) f.Return(Neg(made[result]));
}

TEST(CompositionTest, LoopsGiveTheLastStateOrAllAndTheRows) {
  const auto sum = [](const Formula::LoopInputs& in) {
    const Value next = Add(in.states[0], in.elements[0]);
    return Formula::LoopResults{{next}, {Neg(next)}};
  };
  static auto* const kSum = +sum;
  const auto last = [](Formula& f) { ReturnNegative(f, 0, false, kSum); };
  EXPECT_THAT(StepsOf(last, {F32({5, 2}), F32({2})}),
              ElementsAre("loop float32[2]", "neg float32[2]"));
  const auto all = [](Formula& f) { ReturnNegative(f, 0, true, kSum); };
  EXPECT_THAT(StepsOf(all, {F32({5, 2}), F32({2})}),
              ElementsAre("loop float32[5, 2]", "neg float32[5, 2]"));
  const auto rows = [](Formula& f) { ReturnNegative(f, 1, false, kSum); };
  EXPECT_THAT(StepsOf(rows, {F32({5, 2}), F32({2})}),
              ElementsAre("loop float32[2]", "neg float32[5, 2]"));
  EXPECT_THAT(StepsOf(rows, {F32({0, 2}), F32({2})}),
              ElementsAre(HasSubstr("INVALID_ARGUMENT: test: sequences must have the same length, "
                                    "which must not be 0")));
  EXPECT_THAT(StepsOf(rows, {F32({5, 2}), F32({3})}),
              ElementsAre(HasSubstr("INVALID_ARGUMENT: test: add: shapes")));
}

TEST(CompositionTest, LoopsKeepToTheirRules) {
  const auto grows = [](Formula& f) {
    ReturnNegative(f, 0, false, [](const Formula::LoopInputs& in) {
      return Formula::LoopResults{{Apply("concat", {in.states[0], in.elements[0]})}, {}};
    });
  };
  EXPECT_THAT(StepsOf(grows, {F32({5, 2}), F32({2})}),
              ElementsAre("INTERNAL: test: a state of a loop changes its spec"));
  const auto captures = [](Formula& f) {
    ReturnNegative(f, 0, false, [&](const Formula::LoopInputs& in) {
      return Formula::LoopResults{{Add(in.states[0], f.input(1))}, {}};
    });
  };
  EXPECT_THAT(StepsOf(captures, {F32({5, 2}), F32({2})}),
              ElementsAre("INTERNAL: test: add reads values of two compositions"));
}

TEST(CompositionTest, StepsAreBounded) {
  const auto long_one = [](Formula& f) {
    Value x = f.input(0);
    for (size_t i = 0; i <= Composition::kMaxSteps; ++i) x = Neg(x);
    f.Return(x);
  };
  EXPECT_THAT(StepsOf(long_one, {F32({2})}),
              ElementsAre("INTERNAL: test: a composition has more than 512 steps"));
}

TEST(CompositionTest, ResultsHaveTheDTypeOfTheOperands) {
  EXPECT_EQ(Result("mish", {Of(DType::kBFloat16)}), "bfloat16[2]");
  EXPECT_EQ(Result("mish_backward", {Of(DType::kFloat16), F32({3, 2})}), "float32[3, 2]");
}

}  // namespace
}  // namespace tensord
