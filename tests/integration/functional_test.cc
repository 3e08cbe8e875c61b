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
