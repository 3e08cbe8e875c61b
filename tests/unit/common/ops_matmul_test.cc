#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensord/tests/unit/common/plan.h"

namespace tensord {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string MatMul(Shape a, Shape b, const Attributes& attrs = {}) {
  return Result("matmul", {F32(std::move(a)), F32(std::move(b))}, attrs);
}

TEST(MatMul, ShapesByNumPysRules) {
  EXPECT_EQ(MatMul({3}, {3}), "float32[]");
  EXPECT_EQ(MatMul({2, 3}, {3}), "float32[2]");
  EXPECT_EQ(MatMul({3}, {3, 4}), "float32[4]");
  EXPECT_EQ(MatMul({2, 3}, {3, 4}), "float32[2, 4]");
  EXPECT_EQ(MatMul({5, 2, 3}, {3, 4}), "float32[5, 2, 4]");
  EXPECT_EQ(MatMul({5, 1, 2, 3}, {6, 3, 4}), "float32[5, 6, 2, 4]");
  EXPECT_EQ(MatMul({3}, {7, 3, 4}), "float32[7, 4]");
  EXPECT_EQ(MatMul({7, 2, 3}, {3}), "float32[7, 2]");
  EXPECT_EQ(MatMul({2, 0}, {0, 4}), "float32[2, 4]");
  EXPECT_EQ(MatMul({0, 3}, {3, 4}), "float32[0, 4]");
}

TEST(MatMul, TransposeFlags) {
  EXPECT_EQ(MatMul({3, 2}, {3, 4}, {{"transpose_a", true}}), "float32[2, 4]");
  EXPECT_EQ(MatMul({2, 3}, {4, 3}, {{"transpose_b", true}}), "float32[2, 4]");
  EXPECT_EQ(MatMul({5, 3, 2}, {4, 3}, {{"transpose_a", true}, {"transpose_b", true}}),
            "float32[5, 2, 4]");
  EXPECT_THAT(MatMul({3}, {3, 4}, {{"transpose_a", true}}),
              HasSubstr("transpose_a is set for a vector"));
  EXPECT_THAT(MatMul({2, 3}, {3}, {{"transpose_b", true}}),
              HasSubstr("transpose_b is set for a vector"));
}

TEST(MatMul, ErrorsSuggestWhatWouldFit) {
  EXPECT_THAT(MatMul({2, 3}, {4, 3}), AllOf(HasSubstr("(2,3)·(4,3) needs 3 == 4"),
                                            HasSubstr("with transpose_b they would match")));
  EXPECT_THAT(MatMul({3, 2}, {3, 4}), HasSubstr("with transpose_a they would match"));
  EXPECT_THAT(MatMul({2, 3}, {3, 4}, {{"transpose_b", true}}), HasSubstr("without transpose_b"));
  EXPECT_THAT(MatMul({2, 3}, {4, 5}), Not(HasSubstr("would match")));
  EXPECT_THAT(MatMul({3}, {4}), HasSubstr("(3)·(4) needs 3 == 4"));
  EXPECT_THAT(MatMul({2, 3}, {4}), HasSubstr("(2,3)·(4) needs 3 == 4"));
  EXPECT_THAT(MatMul({}, {3}), HasSubstr("use mul"));
  EXPECT_THAT(MatMul({2, 2, 3}, {5, 3, 4}), HasSubstr("batch shapes [2] and [5]"));
}

TEST(MatMul, DTypes) {
  EXPECT_EQ(Result("matmul", {Of(DType::kInt8), Of(DType::kUInt8)}), "int16[]");
  EXPECT_EQ(Result("matmul", {Of(DType::kFloat16), Of(DType::kFloat16)}), "float16[]");
  EXPECT_EQ(ReadAs("matmul", {Of(DType::kFloat16), Of(DType::kFloat64)}), DType::kFloat64);
  EXPECT_THAT(Result("matmul", {Of(DType::kBool), Of(DType::kBool)}), HasSubstr("bool"));
  EXPECT_THAT(Result("matmul", {Of(DType::kInt32), Of(DType::kFloat32)}), HasSubstr("cast"));
}

TEST(MatMul, AnOuterProductPastTheLimitIsRefused) {
  EXPECT_THAT(MatMul({int64_t{1} << 40, 0}, {0, int64_t{1} << 40}), HasSubstr("281474976710656"));
}

std::string Linear(Shape x, Shape w, const Attributes& attrs = {}) {
  return Result("linear", {F32(std::move(x)), F32(std::move(w))}, attrs);
}

TEST(Linear, ShapesByPyTorchsRules) {
  EXPECT_EQ(Linear({3}, {4, 3}), "float32[4]");
  EXPECT_EQ(Linear({2, 3}, {4, 3}), "float32[2, 4]");
  EXPECT_EQ(Linear({5, 2, 3}, {4, 3}), "float32[5, 2, 4]");
  EXPECT_EQ(Linear({0, 3}, {4, 3}), "float32[0, 4]");
  EXPECT_EQ(Linear({2, 0}, {4, 0}), "float32[2, 4]");
  EXPECT_EQ(Result("linear", {F32({2, 3}), F32({4, 3}), F32({4})}), "float32[2, 4]");
}

TEST(Linear, RejectsInvalidArguments) {
  EXPECT_THAT(Linear({2, 3}, {3, 4}), AllOf(HasSubstr("x ends in 3"), HasSubstr("transposed")));
  EXPECT_THAT(Linear({2, 3}, {5, 4}), AllOf(HasSubstr("takes 4"), Not(HasSubstr("transposed"))));
  EXPECT_THAT(Linear({}, {4, 3}), HasSubstr("scalar"));
  EXPECT_THAT(Linear({3}, {3}), HasSubstr("must be (out,in)"));
  EXPECT_THAT(Linear({3}, {1, 4, 3}), HasSubstr("has 3 dimensions"));
  for (const Shape& bias : {Shape({3}), Shape(), Shape({1, 4})}) {
    EXPECT_THAT(Result("linear", {F32({2, 3}), F32({4, 3}), F32(bias)}),
                HasSubstr("the bias must be (out), here [4], and is " + bias.ToString()));
  }
}

TEST(Linear, DTypesAndActivations) {
  const auto with_bias = [](DType dtype) {
    return Result("linear", {F32({2, 3}), F32({4, 3}), Of(dtype, {4})});
  };
  EXPECT_EQ(with_bias(DType::kFloat64), "float64[2, 4]");
  EXPECT_THAT(with_bias(DType::kInt32), HasSubstr("floating"));
  EXPECT_EQ(ReadAs("linear", {Of(DType::kBFloat16, {2, 3}), F32({4, 3})}), DType::kFloat32);
  for (const char* word : {"none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"}) {
    EXPECT_EQ(Linear({3}, {4, 3}, {{"activation", word}}), "float32[4]");
  }
  EXPECT_THAT(Linear({3}, {4, 3}, {{"activation", "swish"}}), HasSubstr("\"silu\""));
}

}  // namespace
}  // namespace tensord
