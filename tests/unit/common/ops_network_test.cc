#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensord/tests/unit/common/plan.h"

namespace tensord {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TensorSpec F16(Shape shape) { return {DType::kFloat16, std::move(shape)}; }
TensorSpec F64(Shape shape) { return {DType::kFloat64, std::move(shape)}; }

std::vector<std::string> Outputs(absl::string_view op, const std::vector<TensorSpec>& inputs,
                                 const Attributes& attrs = {}) {
  const absl::StatusOr<OpPlan> plan = PlanOp(op, inputs, attrs);
  if (!plan.ok()) return {plan.status().ToString()};
  std::vector<std::string> outputs;
  for (const TensorSpec& output : plan->outputs) outputs.push_back(output.ToString());
  return outputs;
}

TEST(NormInference, StatisticsOf16BitElementsAreFloat32) {
  EXPECT_THAT(Outputs("layer_norm", {F16({2, 3, 4})}),
              ElementsAre("float16[2, 3, 4]", "float32[2, 3, 1]", "float32[2, 3, 1]"));
  EXPECT_THAT(Outputs("layer_norm", {F64({2, 3, 4})}, {{"normalized_rank", int64_t{2}}}),
              ElementsAre("float64[2, 3, 4]", "float64[2, 1, 1]", "float64[2, 1, 1]"));
  EXPECT_THAT(Outputs("layer_norm", {F32({2, 3})}, {{"center", false}}),
              ElementsAre("float32[2, 3]", "float32[2, 1]"));
  const absl::StatusOr<OpPlan> plan = PlanOp("layer_norm", {F16({2, 3}), F16({3})}, {});
  EXPECT_EQ(plan->input_dtypes[1], DType::kFloat32);
}

TEST(NormInference, BatchNormReturnsStatisticsInTrainingOnly) {
  const TensorSpec c = F16({3});
  EXPECT_THAT(Outputs("batch_norm", {F16({2, 3, 4}), c, F32({3})}),
              ElementsAre("float16[2, 3, 4]"));
  EXPECT_THAT(
      Outputs("batch_norm", {F16({2, 3, 4}), c, F32({3})}, {{"training", true}}),
      ElementsAre("float16[2, 3, 4]", "float32[3]", "float32[3]", "float16[3]", "float32[3]"));
  EXPECT_THAT(Result("batch_norm", {F32({1, 3}), F32({3}), F32({3})}, {{"training", true}}),
              HasSubstr("needs two or more elements of each channel"));
}

TEST(NormInference, GradientsAreThoseThatAreAskedFor) {
  const std::vector<TensorSpec> inputs = {F16({5, 4}), F16({5, 4}), F32({5, 1}), F32({5, 1}),
                                          F32({4})};
  EXPECT_THAT(Outputs("layer_norm_backward", inputs),
              ElementsAre("float16[5, 4]", "float32[4]", "float32[4]"));
  EXPECT_THAT(Outputs("layer_norm_backward", inputs, {{"gradients", Ints{0, 2}}}),
              ElementsAre("float16[5, 4]", "float32[4]"));
  EXPECT_THAT(NormalForm("layer_norm_backward", inputs, {}).Ints("gradients"),
              ElementsAre(0, 1, 2));
  EXPECT_THAT(Result("layer_norm_backward", inputs, {{"gradients", Ints{2, 1}}}),
              HasSubstr("gradients is [2, 1]: name some of 0 (x)"));
}

TEST(NormInference, RefusesParametersOfAnotherShapeOrDType) {
  EXPECT_THAT(Result("layer_norm", {F32({2, 3}), F32({2})}),
              HasSubstr("weight has the shape [2] and must have [3]"));
  EXPECT_THAT(Result("layer_norm", {F16({2, 3}), F64({3})}),
              HasSubstr("weight is float64 and must be float16 or float32: cast it first"));
  EXPECT_THAT(Result("layer_norm", {F32({2, 3})}, {{"normalized_rank", int64_t{3}}}),
              HasSubstr("normalized_rank is 3 and must be from 1 to the 2 dimensions of x"));
}

TEST(LossInference, TargetsHaveTheShapeWithoutTheClasses) {
  EXPECT_THAT(Outputs("cross_entropy", {F16({2, 5, 3}), I64({2, 3})}, {{"axis", int64_t{1}}}),
              ElementsAre("float32[2, 3]", "float32[2, 3]"));
  EXPECT_THAT(Result("cross_entropy", {F32({2, 5}), I64({5})}),
              HasSubstr("target has the shape [5] and must have that of x without axis 1, [2]"));
  EXPECT_THAT(Result("cross_entropy", {F32({2, 5}), F32({2})}),
              HasSubstr("input 1 has the classes, which must be int32 or int64, not float32"));
  EXPECT_THAT(Result("cross_entropy", {F32({2, 0}), I64({2})}), HasSubstr("there is no class"));
}

TEST(AttentionInference, HeadsOfQAreAMultipleOfThoseOfKAndV) {
  EXPECT_THAT(Outputs("sdpa", {F16({2, 6, 5, 8}), F16({2, 3, 7, 8}), F16({2, 3, 7, 4})}),
              ElementsAre("float16[2, 6, 5, 4]", "float32[2, 6, 5]"));
  EXPECT_THAT(Result("sdpa", {F32({2, 6, 5, 8}), F32({2, 4, 7, 8}), F32({2, 4, 7, 4})}),
              HasSubstr("q has 6 heads, which must be a multiple of the 4 heads of k and v"));
  EXPECT_THAT(Result("sdpa", {F32({6, 5, 8}), F32({2, 6, 7, 8}), F32({2, 6, 7, 4})}),
              HasSubstr("k has the shape [2, 6, 7, 8] and must have the rank of q"));
}

TEST(AttentionInference, AMaskBroadcastsToTheScores) {
  const auto with = [](const TensorSpec& mask, const Attributes& attrs = {}) {
    return Result("sdpa", {F16({6, 5, 8}), F16({6, 7, 8}), F16({6, 7, 4}), mask}, attrs);
  };
  EXPECT_THAT(with(F32({6, 1, 7})), HasSubstr("float16[6, 5, 4]"));
  EXPECT_THAT(with(F64({5, 7})),
              HasSubstr("the mask is float64 and must be bool or float16 or float32"));
  EXPECT_THAT(with(F16({7, 5})), HasSubstr("must broadcast to that of the scores, [6, 5, 7]"));
  EXPECT_THAT(with(F16({5, 7}), {{"causal", true}}),
              HasSubstr("takes a mask, or causal, but not both"));
}

TEST(AttentionInference, DropoutNeedsASourceOfRandomNumbers) {
  const std::vector<TensorSpec> inputs = {F32({5, 8}), F32({7, 8}), F32({7, 4})};
  EXPECT_THAT(Result("sdpa", inputs, {{"dropout_p", 0.5}}),
              HasSubstr("attribute seed is missing: give it, or the input state"));
  EXPECT_THAT(Result("sdpa", {inputs[0], inputs[1], inputs[2], I64({2})}, {{"dropout_p", 0.5}}),
              HasSubstr("float32[5, 4]"));
  EXPECT_NEAR(NormalForm("sdpa", inputs, {}).Float("scale"), 1 / std::sqrt(8.0), 1e-15);
}

Attributes Windows(Ints kernel, Ints stride, Ints padding, bool ceil = false) {
  return {{"kernel", kernel}, {"stride", stride}, {"padding", padding}, {"ceil_mode", ceil}};
}

TEST(PoolInference, CountsWindowsAsPyTorchDoes) {
  EXPECT_THAT(Outputs("max_pool", {F32({8, 64, 112, 112})}, Windows({3, 3}, {2, 2}, {1, 1})),
              ElementsAre("float32[8, 64, 56, 56]", "int64[8, 64, 56, 56]"));
  EXPECT_EQ(Result("avg_pool", {F32({7, 7})}, Windows({7, 7}, {}, {})), "float32[1, 1]");
  EXPECT_EQ(Result("avg_pool", {F32({9})}, Windows({2}, {}, {})), "float32[4]");
  EXPECT_EQ(Result("avg_pool", {F32({9})}, Windows({2}, {}, {}, true)), "float32[5]");
  // A window that would begin behind the padding isn't one.
  EXPECT_EQ(Result("avg_pool", {F32({4})}, Windows({2}, {3}, {1}, true)), "float32[2]");
  EXPECT_THAT(NormalForm("max_pool", {F32({5, 5})}, {{"kernel", Ints{2, 3}}, {"dilation", Ints{2}}})
                  .Ints("dilation"),
              ElementsAre(2, 2));
}

TEST(PoolInference, RefusesWindowsThatDoNotFit) {
  EXPECT_THAT(Result("max_pool", {F32({5, 5})}, Windows({6, 2}, {}, {})),
              HasSubstr("an axis of size 5 with the padding 0 is shorter than the window"));
  EXPECT_THAT(Result("max_pool", {F32({5, 5})}, Windows({2, 2}, {}, {2, 2})),
              HasSubstr("padding 2 exceeds half of the window, 2 elements"));
  EXPECT_THAT(Result("max_pool", {F32({5})}, Windows({2, 2}, {}, {})),
              HasSubstr("a kernel of 2 axes needs as many dimensions, and x has 1"));
  EXPECT_THAT(Result("max_pool", {F32({5})}, Windows({int64_t{1} << 62}, {}, {})),
              HasSubstr("each number must be from 1 to 2147483647"));
}

TEST(ConvInference, CountsWindowsAsPyTorchDoes) {
  EXPECT_EQ(Result("conv", {F32({1, 3, 224, 224}), F32({64, 3, 7, 7}), F32({64})},
                   {{"stride", Ints{2, 2}}, {"padding", Ints{3, 3}}}),
            "float32[1, 64, 112, 112]");
  EXPECT_EQ(Result("conv", {F32({2, 4, 9}), F32({6, 2, 3})},
                   {{"groups", int64_t{2}}, {"dilation", Ints{2}}, {"padding", Ints{0, 3}}}),
            "float32[2, 6, 8]");
  EXPECT_EQ(Result("conv", {F32({0, 1, 5, 6, 7}), F32({2, 1, 1, 2, 3})}), "float32[0, 2, 5, 5, 5]");
  EXPECT_EQ(Result("conv", {F16({1, 1, 2}), F64({1, 1, 2})}), "float64[1, 1, 1]");
}

TEST(ConvInference, NormalFormHasPaddingAtBothEnds) {
  const auto padding = [](int axes, Ints given) {
    Shape shape({1, 1});
    for (int a = 0; a < axes; ++a) shape.AppendDim(8);
    return NormalForm("conv", {F32(shape), F32(shape)}, {{"padding", std::move(given)}})
        .Ints("padding");
  };
  EXPECT_THAT(padding(1, {}), ElementsAre(0, 0));
  EXPECT_THAT(padding(1, {1}), ElementsAre(1, 1));
  EXPECT_THAT(padding(1, {1, 2}), ElementsAre(1, 2));
  EXPECT_THAT(padding(2, {1}), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(padding(2, {1, 2}), ElementsAre(1, 1, 2, 2));
  EXPECT_THAT(padding(2, {1, 2, 3, 4}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(padding(3, {1, 2, 3}), ElementsAre(1, 1, 2, 2, 3, 3));
  const Attributes attrs = NormalForm("conv", {F32({1, 1, 3, 3}), F32({1, 1, 1, 1})}, {});
  EXPECT_THAT(attrs.Ints("stride"), ElementsAre(1, 1));
  EXPECT_THAT(attrs.Ints("dilation"), ElementsAre(1, 1));
}

TEST(ConvInference, GradientsHaveTheShapesThatAreNamed) {
  const Attributes windows = {{"stride", Ints{2}}, {"padding", Ints{1}}, {"groups", int64_t{2}}};
  const auto with_shape = [&windows](Ints shape) {
    Attributes attrs = windows;
    attrs.Set("shape", std::move(shape));
    return attrs;
  };
  const TensorSpec x = F32({5, 4, 9, 8}), w = F32({6, 2, 3, 2}), y = F32({5, 6, 5, 5});
  EXPECT_EQ(Result("conv", {x, w}, windows), y.ToString());
  EXPECT_EQ(Result("conv_backward_input", {y, w}, with_shape({5, 4, 9, 8})), x.ToString());
  EXPECT_EQ(Result("conv_backward_input", {y, w}, with_shape({5, 4, 10, 9})),
            "float32[5, 4, 10, 9]");
  EXPECT_EQ(Result("conv_backward_weight", {y, x}, with_shape({6, 2, 3, 2})), w.ToString());
  EXPECT_THAT(Result("conv_backward_input", {y, w}, with_shape({5, 4, 11, 8})),
              HasSubstr("gradient has the shape [5, 6, 5, 5] and must have that of the result of "
                        "conv, [5, 6, 6, 5]"));
  EXPECT_THAT(Result("conv_backward_weight", {y, x}, with_shape({6, 2, 3})),
              HasSubstr("for a kernel of 1 axes, x must be (batch,in,1 spatial axes), and has 4"));
  EXPECT_THAT(Result("conv_backward_input", {y, w}, with_shape({5, -4, 9, 8})), HasSubstr("-4"));
}

TEST(ConvInference, RefusesShapesAndAttributesThatDoNotFit) {
  const TensorSpec x = F32({1, 4, 5, 5}), w = F32({6, 4, 3, 3});
  EXPECT_THAT(Result("conv", {F32({1, 4}), F32({6, 4})}),
              HasSubstr("with one to 3 axes of the kernel, and has 2 dimensions"));
  EXPECT_THAT(Result("conv", {F32({4, 5, 5}), w}),
              HasSubstr("x must be (batch,in,2 spatial axes), and has 3 dimensions"));
  EXPECT_THAT(
      Result("conv", {x, F32({6, 2, 3, 3})}),
      HasSubstr("x has 4 channels, and the weight takes 2; with groups=2 they would match"));
  EXPECT_THAT(Result("conv", {x, w}, {{"groups", int64_t{4}}}),
              HasSubstr("the weight has 6 output channels, which don't divide into 4 groups"));
  EXPECT_THAT(Result("conv", {x, w}, {{"groups", int64_t{3}}}),
              HasSubstr("x has 4 channels, which don't divide into 3 groups"));
  EXPECT_THAT(Result("conv", {x, w}, {{"groups", int64_t{0}}}), HasSubstr("must be 1 or more"));
  EXPECT_THAT(
      Result("conv", {x, w, F32({4})}),
      HasSubstr("bias has the shape [4] and must have that of the weight's output channels"));
  EXPECT_THAT(
      Result("conv", {x, F32({6, 4, 8, 3})}, {{"padding", Ints{1}}}),
      HasSubstr("the kernel is larger than the padded x: spatial axis 0 has 7 elements, and "
                "the kernel spans 8"));
  EXPECT_THAT(Result("conv", {x, w}, {{"stride", Ints{0}}}),
              HasSubstr("each number must be from 1"));
  EXPECT_THAT(Result("conv", {x, w}, {{"padding", Ints{-1}}}),
              HasSubstr("each number must be from 0"));
  EXPECT_THAT(Result("conv", {x, w}, {{"padding", Ints{1, 2, 3}}}),
              HasSubstr("padding is [1, 2, 3]: name one number for each of the 2 spatial axes"));
  EXPECT_THAT(Result("conv", {x, w}, {{"dilation", Ints{1, 1, 1}}}), HasSubstr("spatial axes"));
  EXPECT_THAT(Result("conv", {x, w}, {{"activation", "cube"}}), HasSubstr("\"cube\""));
  EXPECT_THAT(Result("conv", {F32({1, 4, 0, 5}), w}, {{"padding", Ints{2}}}),
              HasSubstr("only the batch may be empty"));
  EXPECT_THAT(Result("conv", {x, Of(DType::kInt32, {6, 4, 3, 3})}),
              HasSubstr("needs a floating dtype, not int32"));
}

TEST(ConvInference, RefusesSizesThatOverflow) {
  constexpr int64_t kMax = (int64_t{1} << 31) - 1;
  EXPECT_THAT(Result("conv", {F32({1, 1, 4}), F32({1, 1, 3})}, {{"padding", Ints{kMax + 1}}}),
              HasSubstr("each number must be from 0 to 2147483647"));
  EXPECT_THAT(
      Result("conv", {F32({1, 1, 4, 4, 4}), F32({1, 1, 1, 1, 1})}, {{"padding", Ints{kMax}}}),
      HasSubstr("INVALID_ARGUMENT"));
  EXPECT_THAT(Result("conv", {F32({1, 1, 4}), F32({1, 1, kMax})}, {{"dilation", Ints{kMax}}}),
              HasSubstr("the kernel is larger than the padded x"));
}

TEST(OptimizerInference, StepAndRateAreNumbers) {
  const TensorSpec p = F32({3, 2});
  EXPECT_THAT(Outputs("adam_step", {p, p, p, p, I64({}), F32({})}),
              ElementsAre("float32[3, 2]", "float32[3, 2]", "float32[3, 2]"));
  EXPECT_THAT(Result("adam_step", {p, p, p, p, I64({1}), F32({})}),
              HasSubstr("step must be a number, a tensor of shape []"));
  EXPECT_THAT(Result("adam_step", {p, p, p, F64({3, 2}), I64({}), F32({})}),
              AllOf(HasSubstr("v is float64 and must have that of p, float32: cast it first")));
  EXPECT_THAT(Result("adam_step", {p, p, p, p, p, I64({}), F32({})}),
              HasSubstr("without amsgrad, takes p, gradient, m, v, step and lr"));
}

}  // namespace
}  // namespace tensord
