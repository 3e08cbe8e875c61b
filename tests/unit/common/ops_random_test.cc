#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tensord/tests/unit/common/plan.h"

namespace tensord {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
constexpr double kInfinite = std::numeric_limits<double>::infinity();

std::string Random(const char* op, Attributes attrs, DType dtype = DType::kFloat32) {
  attrs.Set("shape", Ints{2});
  attrs.Set("seed", int64_t{-7});
  attrs.Set("dtype", dtype);
  return Result(op, {}, attrs);
}

TEST(Random, AcceptsOnlyFloatingDTypes) {
  for (const char* op : {"uniform", "normal"}) {
    for (DType dtype : kRealDTypes) {
      EXPECT_THAT(Random(op, {}, dtype), IsFloating(dtype)
                                             ? testing::Matcher<std::string>(Of(dtype).ToString())
                                             : HasSubstr("floating"));
    }
    EXPECT_THAT(Result(op, {}, {{"shape", Ints{2}}}), HasSubstr("seed is missing"));
  }
}

TEST(Random, ChecksParameters) {
  EXPECT_EQ(Random("uniform", {{"low", int64_t{-2}}, {"high", 5.0}}), "float32[2]");
  EXPECT_THAT(Random("uniform", {{"low", 1.0}, {"high", 1.0}}), HasSubstr("below high"));
  EXPECT_THAT(Random("uniform", {{"low", 2.0}}), HasSubstr("below high"));
  EXPECT_THAT(Random("uniform", {{"low", 1.0}, {"high", 1 + 1e-12}}), HasSubstr("below high"));
  EXPECT_THAT(Random("uniform", {{"low", -3e38}, {"high", 3e38}}), HasSubstr("difference"));
  EXPECT_THAT(Random("uniform", {{"high", kInfinite}}), HasSubstr("finite"));
  EXPECT_THAT(Random("uniform", {{"low", std::nan("")}}), HasSubstr("finite"));
  EXPECT_THAT(Random("uniform", {{"high", 1e6}}, DType::kFloat16), HasSubstr("65504"));
  EXPECT_EQ(Random("normal", {{"mean", -3.0}, {"stddev", int64_t{0}}}), "float32[2]");
  EXPECT_THAT(Random("normal", {{"stddev", -1.0}}), HasSubstr("must not be negative"));
  EXPECT_THAT(Random("normal", {{"mean", kInfinite}}), HasSubstr("finite"));
}

const TensorSpec kState = Of(DType::kInt64, {2});

TEST(Random, NumbersComeFromAttributesOrFromAState) {
  for (const char* op : {"uniform", "normal"}) {
    const Attributes shape = {{"shape", Ints{3}}};
    EXPECT_EQ(Result(op, {kState}, shape), "float32[3]");
    EXPECT_EQ(NormalForm(op, {kState}, shape).Int("seed"), 0);
    EXPECT_EQ(NormalForm(op, {kState}, shape).Int("stream"), 0);
    for (const char* attr : {"seed", "stream"}) {
      Attributes both = shape;
      both.Set(attr, int64_t{0});
      EXPECT_EQ(Result(op, {kState}, both), "float32[3]");
      both.Set(attr, int64_t{-1});
      EXPECT_THAT(Result(op, {kState}, both), HasSubstr("come from the input state"));
    }
    for (const TensorSpec& bad :
         {Of(DType::kInt32, {2}), Of(DType::kInt64, {1, 2}), Of(DType::kInt64, {3})}) {
      EXPECT_THAT(Result(op, {bad}, shape), HasSubstr("must be int64[2]"));
    }
    EXPECT_THAT(Result(op, {kState, kState}, shape), HasSubstr("takes 0 to 1 input and got 2"));
    EXPECT_THAT(Result(op, {}, {{"shape", Ints{3}}, {"stream", int64_t{1}}}),
                HasSubstr("seed is missing"));
  }
}

std::string Randint(int64_t low, int64_t high, DType dtype = DType::kInt64) {
  return Result(
      "randint", {},
      {{"shape", Ints{2}}, {"seed", int64_t{1}}, {"low", low}, {"high", high}, {"dtype", dtype}});
}

TEST(Randint, ChecksTheRange) {
  EXPECT_EQ(Randint(0, 10), "int64[2]");
  EXPECT_EQ(Randint(kLowest, kHighest), "int64[2]");
  EXPECT_EQ(Randint(0, 256, DType::kUInt8), "uint8[2]");
  EXPECT_EQ(Randint(-128, 128, DType::kInt8), "int8[2]");
  EXPECT_THAT(Randint(5, 5), HasSubstr("low 5 must be below high 5"));
  EXPECT_THAT(Randint(0, kLowest), HasSubstr("must be below"));
  EXPECT_THAT(Randint(0, 257, DType::kUInt8), HasSubstr("256 doesn't fit uint8"));
  EXPECT_THAT(Randint(-129, 0, DType::kInt8), HasSubstr("-129 doesn't fit int8"));
  EXPECT_THAT(Randint(0, 2, DType::kBool), HasSubstr("needs an integer dtype"));
  EXPECT_THAT(Randint(0, 2, DType::kFloat32), HasSubstr("needs an integer dtype"));
  EXPECT_THAT(Result("randint", {kState}, {{"shape", Ints{2}}}), HasSubstr("high is missing"));
  EXPECT_EQ(Result("randint", {kState}, {{"shape", Ints{2}}, {"high", int64_t{3}}}), "int64[2]");
}

TEST(Dropout, HasTheInputsSpec) {
  const Attributes seed = {{"seed", int64_t{1}}};
  for (DType dtype : kRealDTypes) {
    EXPECT_THAT(Result("dropout", {Of(dtype, {2, 3})}, seed),
                IsFloating(dtype) ? testing::Matcher<std::string>(Of(dtype, {2, 3}).ToString())
                                  : HasSubstr("floating"));
  }
  EXPECT_EQ(Result("dropout", {F32({2}), kState}), "float32[2]");
  EXPECT_EQ(NormalForm("dropout", {F32({2})}, seed).Float("p"), 0.5);
  EXPECT_THAT(Result("dropout", {F32({2})}), HasSubstr("seed is missing"));
  EXPECT_THAT(Result("dropout", {F32({2}), F32({2})}), HasSubstr("must be int64[2]"));
}

TEST(Dropout, TheMaskIsASecondOutput) {
  const auto plan = PlanOp("dropout", {Of(DType::kFloat16, {2, 3}), kState}, {{"mask", true}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->outputs,
              testing::ElementsAre(Of(DType::kFloat16, {2, 3}), Of(DType::kBool, {2, 3})));
}

TEST(Dropout, ChecksTheProbability) {
  const auto result = [](AttrValue p, bool mask = false) {
    return Result("dropout", {F32({2})},
                  {{"p", std::move(p)}, {"seed", int64_t{1}}, {"mask", mask}});
  };
  EXPECT_EQ(result(0.0), "float32[2] alias") << "nothing is dropped";
  EXPECT_EQ(result(0.0, /*mask=*/true), "float32[2]");
  EXPECT_EQ(result(int64_t{1}), "float32[2]");
  for (double bad : {-1e-9, 1 + 1e-9, kInfinite, -kInfinite, std::nan("")}) {
    EXPECT_THAT(result(bad), AllOf(HasSubstr("probability p"), HasSubstr("from 0 to 1")));
  }
}

}  // namespace
}  // namespace tensord
