// The functions of client/functional.h: their results' shapes, options and errors. The conformance
// tests check the values of the ops.
#include <cmath>
#include <vector>

#include "tensord/tests/integration/client_fixture.h"

namespace tensord::integration {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::Pointwise;

class FunctionalTest : public ClientFixture {
 protected:
  Tensor Matrix(int64_t rows, int64_t columns, const std::vector<float>& values) {
    return FromVector<float>(first_, {rows, columns}, values);
  }
  Tensor Classes(const std::vector<int64_t>& values) {
    return FromVector<int64_t>(first_, {static_cast<int64_t>(values.size())}, values);
  }
};

TEST_F(FunctionalTest, LayerNormGivesStatisticsForItsGradients) {
  const Tensor x = Matrix(2, 2, {1, 3, 5, 1});
  const Tensor weight = Floats({2, 1}), bias = Floats({0, 1});
  EXPECT_THAT(*LayerNorm(x, {weight, bias}, {.eps = 0}).Read<float>(), ElementsAre(-2, 2, 2, 0));
  const LayerNormResult forward = LayerNormWithStatistics(x, {}, {.eps = 0});
  EXPECT_THAT(*forward.mean.Read<float>(), ElementsAre(2, 3));
  EXPECT_THAT(*forward.rstd.Read<float>(), ElementsAre(1, 0.5));
  const NormGradients gradients = LayerNormBackward(x, x, forward, weight);
  EXPECT_EQ(gradients.x.shape(), x.shape());
  EXPECT_THAT(*gradients.bias.Read<float>(), ElementsAre(6, 4));
}

TEST_F(FunctionalTest, RmsNormHasNoMean) {
  const Tensor x = Matrix(1, 2, {3, 3});
  const LayerNormResult forward = RmsNormWithStatistics(x, {}, {.eps = 0});
  EXPECT_THAT(*forward.y.Read<float>(), Pointwise(FloatNear(1e-6f), {1.0f, 1.0f}));
  EXPECT_EQ(forward.mean.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(*RmsNormBackward(x, x, forward).weight.Read<float>(),
              Pointwise(FloatNear(1e-5f), {3.0f, 3.0f}));
}

TEST_F(FunctionalTest, BatchNormUpdatesRunningStatisticsInTraining) {
  const Tensor x = Matrix(2, 2, {1, 10, 3, 30});
  const Tensor zeros = Floats({0, 0}), ones = Floats({1, 1});
  const BatchNormResult result =
      BatchNormInTraining(x, zeros, ones, {}, {.eps = 0, .momentum = 0.5});
  EXPECT_THAT(*result.y.Read<float>(), Pointwise(FloatNear(1e-6f), {-1.f, -1.f, 1.f, 1.f}));
  EXPECT_THAT(*result.mean.Read<float>(), ElementsAre(2, 20));
  EXPECT_THAT(*result.running_mean.Read<float>(), ElementsAre(1, 10));
  EXPECT_THAT(*result.running_var.Read<float>(), ElementsAre(1.5, 100.5));
  EXPECT_THAT(*BatchNorm(x, zeros, ones, {}, {.eps = 0}).Read<float>(), ElementsAre(1, 10, 3, 30));
}

TEST_F(FunctionalTest, AttentionTakesAMaskOrACausalOne) {
  const Tensor q = Matrix(2, 1, {0, 0}), k = Matrix(2, 1, {1, 2}), v = Matrix(2, 1, {1, 3});
  const Tensor mask = Gt(Matrix(2, 2, {0, 1, 0, 0}), 0.5);
  EXPECT_THAT(*ScaledDotProductAttention(q, k, v).Read<float>(), ElementsAre(2, 2));
  EXPECT_THAT(*ScaledDotProductAttention(q, k, v, {.causal = true}).Read<float>(),
              ElementsAre(1, 2));
  const AttentionResult masked = ScaledDotProductAttentionWithStatistics(q, k, v, {.mask = mask});
  EXPECT_THAT(*masked.output.Read<float>(), ElementsAre(3, 0));
  EXPECT_EQ((*masked.lse.Read<float>())[1], -INFINITY);
  ExpectError(ScaledDotProductAttention(q, k, v, {.mask = mask, .causal = true}).Wait(),
              absl::StatusCode::kInvalidArgument,
              {"sdpa", "takes a mask, or causal, but not both"});
}

TEST_F(FunctionalTest, AttentionDropsTheSameWeightsForItsGradient) {
  // v is the identity, so a column of the output has the weights of a key, and a row of v's
  // gradient their sum.
  const Tensor q = Zeros(first_, {3, 2}), k = Zeros(first_, {4, 2}), v = Eye(first_, 4);
  const AttentionOptions options = {.dropout_p = 0.5, .stream = Generator(7).Next()};
  const AttentionResult forward = ScaledDotProductAttentionWithStatistics(q, k, v, options);
  const AttentionGradients gradients =
      ScaledDotProductAttentionBackward(Ones(first_, {3, 4}), q, k, v, forward, options);
  const Tensor kept = Sum(forward.output, {.axes = {0}});
  EXPECT_THAT(*Mean(gradients.v, {.axes = {1}}).Read<float>(),
              Pointwise(FloatNear(1e-5f), *kept.Read<float>()));
}

TEST_F(FunctionalTest, AttentionOfManyEmptyHeadsNeedsNoMemoryForThem) {
  const int64_t heads = int64_t{1} << 40;
  const Tensor q = Zeros(first_, {1, heads, 0, 4}), k = Ones(first_, {1, 1, 1, 4});
  const Tensor mask = Zeros(first_, {1});
  const AttentionResult forward = ScaledDotProductAttentionWithStatistics(q, k, k, {.mask = mask});
  const AttentionGradients gradients = ScaledDotProductAttentionBackward(
      q, q, k, k, forward, {.mask = mask}, /*mask_gradient=*/true);
  EXPECT_THAT(*gradients.k.Read<float>(), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(*gradients.v.Read<float>(), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(*gradients.mask.Read<float>(), ElementsAre(0));
}

TEST_F(FunctionalTest, CrossEntropyReducesAsPyTorchDoes) {
  const Tensor x = Matrix(3, 2, {0, 0, 0, 0, 5, 1}), target = Classes({0, 1, -100});
  const auto log2 = static_cast<float>(std::log(2.0));
  EXPECT_THAT(*CrossEntropy(x, target, {.reduction = LossReduction::kNone}).Read<float>(),
              Pointwise(FloatNear(1e-6f), {log2, log2, 0.0f}));
  EXPECT_NEAR(*CrossEntropy(x, target, {.reduction = LossReduction::kSum}).Item<float>(), 2 * log2,
              1e-6);
  EXPECT_NEAR(*CrossEntropy(x, target).Item<float>(), log2, 1e-6);
  EXPECT_NEAR(*CrossEntropy(x, Classes({0, 0, 0}), {.weight = Floats({2, 1})}).Item<float>(),
              (2 * log2 + std::log1p(std::exp(-4.0))) / 3, 1e-6);
  EXPECT_EQ(CrossEntropy(x.To(DType::kBFloat16), target).dtype(), DType::kBFloat16);
}

TEST_F(FunctionalTest, CrossEntropyFailsForAClassOutOfRange) {
  const Tensor loss = CrossEntropy(Matrix(1, 2, {1, 2}), Classes({2}));
  ExpectError(loss.Wait(), absl::StatusCode::kInvalidArgument,
              {"cross_entropy", "class 2 at [0] of input 1 is out of range for 2 classes"});
}

TEST_F(FunctionalTest, ConvolutionAndItsGradients) {
  const Tensor x = Reshape(Floats({1, 2, 3, 4, 5, 6, 7, 8, 9}), {1, 1, 3, 3});
  const Tensor weight = Reshape(Floats({1, 0, 0, -1}), {1, 1, 2, 2});
  EXPECT_THAT(*Conv2d(x, weight).Read<float>(), ElementsAre(-4, -4, -4, -4));
  EXPECT_THAT(*Conv2d(x, weight, Floats({5}), {.stride = {2}, .padding = {1}}).Read<float>(),
              ElementsAre(4, 2, -2, 1));
  EXPECT_THAT(*Conv2d(x, weight, Floats({5}), {.padding = {0, 1}, .activation = Activation::kRelu})
                   .Read<float>(),
              ElementsAre(1, 1, 1, 8, 0, 1, 1, 11));
  const Tensor g = Reshape(Floats({1, 2, 3, 4}), {1, 1, 2, 2});
  EXPECT_THAT(*ConvBackwardInput(g, weight, {1, 1, 3, 3}).Read<float>(),
              ElementsAre(1, 2, 0, 3, 3, -2, 0, -3, -4));
  EXPECT_THAT(*ConvBackwardWeight(g, x, {1, 1, 2, 2}).Read<float>(), ElementsAre(37, 47, 67, 77));
}

TEST_F(FunctionalTest, ConvolutionTakesAnImageWithoutABatch) {
  const Tensor x = Matrix(1, 4, {1, 2, 3, 4}), weight = Reshape(Floats({1, 2, 3}), {1, 1, 3});
  const Tensor y = Conv1d(x, weight, {}, {.same_padding = true});
  EXPECT_EQ(y.shape(), Shape({1, 4}));
  EXPECT_THAT(*y.Read<float>(), ElementsAre(8, 14, 20, 11));
  // Of an odd padding, the end gets one zero more.
  const Tensor even = Reshape(Floats({1, 2}), {1, 1, 2});
  EXPECT_THAT(*Conv1d(x, even, {}, {.same_padding = true}).Read<float>(), ElementsAre(5, 8, 11, 4));
  EXPECT_EQ(Conv3d(Ones(first_, {2, 4, 4, 4}), Ones(first_, {3, 2, 3, 3, 3})).shape(),
            Shape({3, 2, 2, 2}));
}

TEST_F(FunctionalTest, TransposedConvolution) {
  const Tensor x = Reshape(Floats({1, 2}), {1, 1, 2}),
               weight = Reshape(Floats({1, 2, 3}), {1, 1, 3});
  EXPECT_THAT(*ConvTranspose1d(x, weight).Read<float>(), ElementsAre(1, 4, 7, 6));
  EXPECT_THAT(*ConvTranspose1d(x, weight, Floats({10}), {.stride = {2}, .output_padding = {1}})
                   .Read<float>(),
              ElementsAre(11, 12, 15, 14, 16, 10));
  EXPECT_THAT(*ConvTranspose1d(x, weight, {}, {.stride = {2}, .padding = {1}, .dilation = {2}})
                   .Read<float>(),
              ElementsAre(0, 4, 0, 7, 0));
  EXPECT_EQ(ConvTranspose2d(Ones(first_, {4, 5, 5}), Ones(first_, {4, 3, 2, 2}), {}, {.groups = 2})
                .shape(),
            Shape({6, 6, 6}));
  // The sum with the bias is rounded once.
  const Tensor half = ConvTranspose1d(x.To(DType::kFloat16), (weight * 0.1).To(DType::kFloat16),
                                      Floats({2048}).To(DType::kFloat16));
  EXPECT_EQ(half.dtype(), DType::kFloat16);
}

TEST_F(FunctionalTest, ConvolutionNamesWhatDoesNotFit) {
  const Tensor x = Ones(first_, {1, 4, 5, 5}), weight = Ones(first_, {6, 4, 3, 3});
  ExpectError(Conv1d(x, weight).status(), absl::StatusCode::kInvalidArgument,
              {"conv1d", "the weight must have 3 dimensions", "float32[6, 4, 3, 3]"});
  ExpectError(Conv2d(x, weight, {}, {.stride = {2}, .same_padding = true}).status(),
              absl::StatusCode::kInvalidArgument, {"conv2d", "same_padding needs a stride of 1"});
  ExpectError(ConvTranspose2d(x, Ones(first_, {4, 2, 3, 3}), {}, {.output_padding = {1}}).status(),
              absl::StatusCode::kInvalidArgument,
              {"conv_transpose2d", "output_padding 1 must be less than the stride, 1"});
  ExpectError(ConvTranspose2d(x, Ones(first_, {4, 2, 3, 3}), {}, {.padding = {4}}).status(),
              absl::StatusCode::kInvalidArgument,
              {"spatial axis 0 of the result would have -1 elements"});
  ExpectError(ConvTranspose2d(x, weight).status(), absl::StatusCode::kInvalidArgument,
              {"conv_backward_input"});
}

TEST_F(FunctionalTest, PoolingAndItsGradients) {
  const Tensor x = Matrix(2, 4, {1, 2, 3, 4, 8, 7, 6, 5});
  const PoolResult pooled = MaxPoolWithIndices(x, {.kernel = {2, 2}});
  EXPECT_THAT(*pooled.y.Read<float>(), ElementsAre(8, 6));
  EXPECT_THAT(*pooled.indices.Read<int64_t>(), ElementsAre(4, 6));
  EXPECT_THAT(*MaxPoolBackward(pooled.y, pooled.indices, {2, 4}, {.kernel = {2, 2}}).Read<float>(),
              ElementsAre(0, 0, 0, 0, 8, 0, 6, 0));
  EXPECT_THAT(*AvgPool(x, {.kernel = {2, 2}}).Read<float>(), ElementsAre(4.5, 4.5));
  EXPECT_THAT(*AvgPoolBackward(Matrix(1, 2, {4, 8}), {2, 4}, {.kernel = {2, 2}}).Read<float>(),
              ElementsAre(1, 1, 2, 2, 1, 1, 2, 2));
}

TEST_F(FunctionalTest, AStepOfAdamReplacesItsState) {
  AdamState state = {Floats({1, 2}), Floats({0, 0}), Floats({0, 0})};
  const Tensor before = state.p, step = FromScalar(first_, 1.0), lr = FromScalar(first_, 0.5);
  state = AdamStep(state, Floats({3, -3}), step, lr);
  EXPECT_THAT(*state.p.Read<float>(), Pointwise(FloatNear(1e-6f), {0.5f, 2.5f}));
  EXPECT_EQ(before.status().code(), absl::StatusCode::kFailedPrecondition);
  const AdamState next = AdamStep(state, Floats({0, 0}), step, lr, {.donate = false});
  EXPECT_TRUE(state.p.status().ok());
  EXPECT_FALSE(next.vmax.has_value());
  state.vmax = Floats({0, 0});
  EXPECT_TRUE(AdamStep(state, Floats({0, 0}), step, lr).vmax->Wait().ok());
}

}  // namespace
}  // namespace tensord::integration
