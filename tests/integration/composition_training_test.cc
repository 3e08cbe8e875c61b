// The activations, losses, gradients and steps of optimizers that are compositions: special values,
// options, dtypes and errors. gradients_test.cc compares the gradients with finite differences.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/tests/integration/client_fixture.h"

namespace tensord::integration {
namespace {

using testing::ElementsAre;
using testing::FloatEq;
using testing::StartsWith;

using Tensors = std::vector<Tensor>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class CompositionTrainingTest : public ClientFixture {
 protected:
  Tensor Matrix(int64_t rows, int64_t columns, const std::vector<float>& values) {
    return FromVector<float>(first_, {rows, columns}, values);
  }
  Tensor Classes(const std::vector<int64_t>& values) {
    return FromVector<int64_t>(first_, {static_cast<int64_t>(values.size())}, values);
  }
};

// PyTorch returns the same gradients at these points.
TEST_F(CompositionTrainingTest, GradientsAtPointsWithoutADerivative) {
  const Tensor ones = Ones(first_, {2});
  EXPECT_THAT(*ThresholdBackward(ones, Floats({0, -0.0f})).Read<float>(), ElementsAre(0, 0));
  EXPECT_THAT(*LeakyReluBackward(ones, Floats({0, 0}), 0.5).Read<float>(), ElementsAre(0.5, 0.5));
  EXPECT_THAT(*HardtanhBackward(ones, Floats({-1, 1})).Read<float>(), ElementsAre(0, 0));
  EXPECT_THAT(*HardsigmoidBackward(ones, Floats({-3, 3})).Read<float>(), ElementsAre(0, 0));
  EXPECT_THAT(*HardswishBackward(ones, Floats({-3, 3})).Read<float>(), ElementsAre(0, 1));
  EXPECT_THAT(*L1LossBackward(ones, ones, ones, LossReduction::kNone).Read<float>(),
              ElementsAre(0, 0));
}

TEST_F(CompositionTrainingTest, LargeArgumentsDoNotOverflow) {
  const Tensor x = Floats({-200, 200}), ones = Ones(first_, {2}), target = Floats({1, 0});
  EXPECT_THAT(*LogSigmoid(x).Read<float>(), ElementsAre(-200, 0));
  EXPECT_THAT(*LogSigmoidBackward(ones, x).Read<float>(), ElementsAre(1, 0));
  EXPECT_THAT(*Mish(x).Read<float>(), ElementsAre(0, 200));
  EXPECT_THAT(*MishBackward(ones, x).Read<float>(), ElementsAre(0, 1));
  EXPECT_THAT(*GeluBackward(ones, x).Read<float>(), ElementsAre(0, 1));
  EXPECT_THAT(*EluBackward(ones, x).Read<float>(), ElementsAre(0, 1));
  EXPECT_THAT(*SoftplusBackward(ones, x).Read<float>(), ElementsAre(0, 1));
  EXPECT_THAT(
      *BinaryCrossEntropyWithLogits(x, target, {.reduction = LossReduction::kNone}).Read<float>(),
      ElementsAre(200, 200));
}

TEST_F(CompositionTrainingTest, BinaryCrossEntropyLimitsItsLogarithms) {
  const Tensor x = Floats({0, 1, 0, 1}), target = Floats({1, 0, 0, 1});
  const BinaryCrossEntropyOptions options = {.reduction = LossReduction::kNone};
  EXPECT_THAT(*BinaryCrossEntropy(x, target, options).Read<float>(), ElementsAre(100, 100, 0, 0));
  const Tensor gradients = BinaryCrossEntropyBackward(Ones(first_, {4}), x, target, options);
  EXPECT_THAT(*gradients.Read<float>(), ElementsAre(FloatEq(-1e12f), FloatEq(1e12f), 0, 0));
}

TEST_F(CompositionTrainingTest, KlDivOfATargetOfZeroIsZero) {
  const Tensor x = Floats({-1, -2}), target = Floats({0, 1});
  EXPECT_THAT(*KlDiv(x, target, {.reduction = LossReduction::kNone}).Read<float>(),
              ElementsAre(0, 2));
}

TEST_F(CompositionTrainingTest, LossesReduce) {
  const Tensor x = Floats({1, 2, 3, 4}), target = Floats({1, 1, 1, 1}), one = Ones(first_, {});
  EXPECT_THAT(*MseLoss(x, target, LossReduction::kNone).Read<float>(), ElementsAre(0, 1, 4, 9));
  EXPECT_EQ(*MseLoss(x, target, LossReduction::kSum).Item<float>(), 14);
  EXPECT_EQ(*MseLoss(x, target).Item<float>(), 3.5);
  EXPECT_THAT(*MseLossBackward(one, x, target).Read<float>(), ElementsAre(0, 0.5, 1, 1.5));
  EXPECT_THAT(*MseLossBackward(one, x, target, LossReduction::kSum).Read<float>(),
              ElementsAre(0, 2, 4, 6));
  const Tensor none = Zeros(first_, {0});
  EXPECT_TRUE(std::isnan(*L1Loss(none, none).Item<float>()));
  EXPECT_EQ(*L1Loss(none, none, LossReduction::kSum).Item<float>(), 0);
  EXPECT_EQ(L1LossBackward(one, none, none).shape(), Shape({0}));
}

// The sum of the squares is 4096 + 1, which bfloat16 and float16 don't have.
TEST_F(CompositionTrainingTest, SixteenBitLossesAreSummedInFloat32) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const Tensor x = Floats({64, 1, 1, 1}).To(dtype), zeros = Zeros(first_, {4}, {.dtype = dtype});
    const Tensor loss = MseLoss(x, zeros, LossReduction::kSum);
    EXPECT_EQ(loss.dtype(), dtype);
    EXPECT_EQ(*loss.Item<float>(), *Floats({4099}).To(dtype).Item<float>());
    EXPECT_EQ(MseLossBackward(loss, x, zeros).dtype(), dtype);
  }
}

TEST_F(CompositionTrainingTest, NllLossIgnoresTargets) {
  const Tensor x = Matrix(3, 2, {-1, -2, -3, -4, kInfinity, -6}), target = Classes({1, 0, 7});
  const Tensor weight = Floats({3, 1}), one = Ones(first_, {});
  const NllLossOptions options = {.weight = weight, .ignore_index = 7};
  EXPECT_EQ(*NllLoss(x, target, options).Item<float>(), (2 + 9) / 4.0f);
  EXPECT_THAT(*NllLossBackward(one, x, target, options).Read<float>(),
              ElementsAre(0, -0.25, -0.75, 0, 0, 0));
  EXPECT_THAT(
      *NllLoss(x, target, {.reduction = LossReduction::kNone, .ignore_index = 7}).Read<float>(),
      ElementsAre(2, 3, 0));
}

TEST_F(CompositionTrainingTest, TheMeanOfNoTargetsIsNan) {
  const Tensor x = Matrix(2, 2, {-1, -2, -3, -4}), ignored = Classes({-100, -100});
  const Tensor none = Zeros(first_, {0, 2}), one = Ones(first_, {});
  for (const auto& [values, target] : {std::pair(x, ignored), std::pair(none, Classes({}))}) {
    EXPECT_TRUE(std::isnan(*NllLoss(values, target).Item<float>()));
    EXPECT_TRUE(std::isnan(*CrossEntropy(values, target).Item<float>()));
    EXPECT_EQ(*NllLoss(values, target, {.reduction = LossReduction::kSum}).Item<float>(), 0);
    EXPECT_EQ(*CrossEntropy(values, target, {.reduction = LossReduction::kSum}).Item<float>(), 0);
  }
  EXPECT_THAT(*NllLossBackward(one, x, ignored).Read<float>(), ElementsAre(0, 0, 0, 0));
}

TEST_F(CompositionTrainingTest, NllLossFailsForAClassOutOfRange) {
  const Tensor x = Matrix(2, 2, {-1, -2, -3, -4}), one = Ones(first_, {});
  for (const int64_t wrong : {-1, 2}) {
    const Tensor target = Classes({0, wrong});
    for (const Tensor& result : {NllLoss(x, target), NllLossBackward(one, x, target)}) {
      ExpectError(result.Wait(), absl::StatusCode::kInvalidArgument,
                  {absl::StrCat("index ", wrong), "out of range for axis 1 of size 2"});
    }
  }
}

TEST_F(CompositionTrainingTest, EmbeddingBackwardAddsTheGradientsOfARow) {
  const Tensor gradient = Matrix(4, 2, {1, 2, 3, 4, 5, 6, 7, 8});
  const Tensor indices = FromVector<int64_t>(first_, {4}, {2, 0, 2, 1});
  EXPECT_THAT(*EmbeddingBackward(gradient, indices, 3).Read<float>(),
              ElementsAre(3, 4, 7, 8, 6, 8));
  EXPECT_THAT(*EmbeddingBackward(gradient, indices, 4, {.padding_idx = 2}).Read<float>(),
              ElementsAre(3, 4, 7, 8, 0, 0, 0, 0));
  EXPECT_THAT(*EmbeddingBackward(gradient, indices, 3, {.padding_idx = -3}).Read<float>(),
              ElementsAre(0, 0, 7, 8, 6, 8));
  const Tensor halves = gradient.To(DType::kFloat16);
  const Tensor scaled = EmbeddingBackward(halves, indices, 3, {.scale_grad_by_freq = true});
  EXPECT_EQ(scaled.dtype(), DType::kFloat16);
  EXPECT_THAT(*scaled.To(DType::kFloat32).Read<float>(), ElementsAre(3, 4, 7, 8, 3, 4));
}

TEST_F(CompositionTrainingTest, GradientsOfPartsAndMasks) {
  const Tensor gradient = Floats({1, 2});
  EXPECT_THAT(*SelectBackward(gradient, {2, 2}, 1, -1).Read<float>(), ElementsAre(0, 1, 0, 2));
  EXPECT_THAT(*SliceBackward(gradient, {5}, {.start = 1, .step = 2}).Read<float>(),
              ElementsAre(0, 1, 0, 2, 0));
  const Tensor mask = Gt(Floats({0, 1}), 0);
  EXPECT_THAT(*DropoutBackward(gradient, mask, 0.5).Read<float>(), ElementsAre(0, 4));
  EXPECT_THAT(*MaskedFill(gradient, mask, -kInfinity).Read<float>(), ElementsAre(1, -kInfinity));
}

TEST_F(CompositionTrainingTest, SgdStepsWithAMomentum) {
  const Tensor gradient = Floats({2, -4});
  EXPECT_THAT(*SgdStep({Floats({1, 1})}, gradient, 0.5).p.Read<float>(), ElementsAre(0, 3));
  EXPECT_FALSE(SgdStep({Floats({1, 1})}, gradient, 0.5).buffer.has_value());
  EXPECT_THAT(*SgdStep({Floats({1, 1})}, gradient, 0.5, {.weight_decay = 2, .maximize = true})
                   .p.Read<float>(),
              ElementsAre(1, -2));
  const SgdOptions options = {.momentum = 0.5, .dampening = 0.5};
  const Tensor lr = FromScalar(first_, 1.0);
  SgdState state = SgdStep({Floats({1, 1})}, gradient, lr, options);
  EXPECT_THAT(*state.p.Read<float>(), ElementsAre(-1, 5));  // the first buffer is the gradient
  state = SgdStep(state, gradient, lr, options);
  EXPECT_THAT(*state.buffer->Read<float>(), ElementsAre(2, -4));
  EXPECT_THAT(*state.p.Read<float>(), ElementsAre(-3, 9));
  const SgdState nesterov =
      SgdStep({Floats({1, 1}), Floats({2, 0})}, gradient, 1.0, {.momentum = 0.5, .nesterov = true});
  EXPECT_THAT(*nesterov.p.Read<float>(), ElementsAre(1 - 2 - 1.5, 1 + 4 + 2));
  const SgdState halves = SgdStep({Floats({1}).To(DType::kFloat16)}, Ones(first_, {1}), lr);
  EXPECT_EQ(halves.p.dtype(), DType::kFloat16);
}

// Returns the loss, and the weight after a step.
Tensors TrainingStep(absl::Span<const Tensor> in) {
  const Tensor &weight = in[0], &indices = in[1], &target = in[2], &lr = in[3];
  const Tensor y = Embedding(indices, weight);
  const Tensor of_y = MseLossBackward(Ones(y.device(), {}), y, target);
  const Tensor of_weight = EmbeddingBackward(of_y, indices, 3, {.scale_grad_by_freq = true});
  return {MseLoss(y, target), SgdStep({weight}, of_weight, lr).p};
}

TEST_F(CompositionTrainingTest, AStepOfTrainingRunsAsAProgram) {
  const Tensor indices = FromVector<int64_t>(first_, {4}, {2, 0, 2, 1});
  const Tensor target = Matrix(4, 2, {1, 2, 3, 4, 5, 6, 7, 8}), lr = FromScalar(first_, 0.5);
  Tensor weight = Zeros(first_, {3, 2}), directly = weight;
  const auto program = Program::Record(
      first_, {weight.spec(), indices.spec(), target.spec(), lr.spec()}, TrainingStep);
  ASSERT_TRUE(program.ok()) << program.status();
  for (int step = 0; step < 3; ++step) {
    const auto results = program->Run({weight, indices, target, lr});
    const Tensors expected = TrainingStep({directly, indices, target, lr});
    EXPECT_EQ(*results[0].Item<float>(), *expected[0].Item<float>());
    EXPECT_EQ(*results[1].Read<float>(), *expected[1].Read<float>());
    weight = results[1];
    directly = expected[1];
  }
}

TEST_F(CompositionTrainingTest, ErrorsBeginWithTheNameOfTheFunction) {
  const Tensor x = Floats({1, 2}), other = Floats({1, 2, 3}), ints = Classes({0, 1});
  const Tensor matrix = Matrix(2, 2, {1, 2, 3, 4});
  const std::pair<const char*, Tensor> cases[] = {
      {"mse_loss: x and the target must have one shape; inputs are float32[2], float32[3]",
       MseLoss(x, other)},
      {"mse_loss_backward: the gradient or a weight doesn't broadcast to x",
       MseLossBackward(matrix, x, x)},
      {"binary_cross_entropy: a weight doesn't broadcast",
       BinaryCrossEntropy(x, x, {.weight = matrix})},
      {"kl_div: needs a floating dtype, not int64", KlDiv(x, ints, {.log_target = true})},
      {"smooth_l1_loss: beta is -1", SmoothL1Loss(x, x, {.beta = -1})},
      {"huber_loss_backward: delta is 0", HuberLossBackward(x, x, x, {.delta = 0})},
      {"nll_loss: the target must have x's shape without the classes",
       NllLoss(matrix, Classes({1}))},
      {"nll_loss: the target must be int32 or int64", NllLoss(matrix, x)},
      {"nll_loss_backward: the weight must have the shape [2]",
       NllLossBackward(x, matrix, ints, {.weight = other})},
      {"gelu_backward: mul: shapes", GeluBackward(other, x)},
      {"embedding_backward: the gradient must have the shape of the indices and a last dimension",
       EmbeddingBackward(x, ints, 3)},
      {"embedding_backward: padding_idx is 3, and the weight has 3 rows",
       EmbeddingBackward(matrix, ints, 3, {.padding_idx = 3})},
      {"select_backward: index 2 is out of range", SelectBackward(x, {2, 2}, 0, 2)},
      {"slice_backward: as_strided_scatter: ", SliceBackward(x, {5}, {.stop = 3})},
      {"masked_fill: where: ", MaskedFill(x, x, 1)},
      {"dropout_backward: the probability p is 2", DropoutBackward(x, Gt(x, 0), 2)},
      {"sgd_step: nesterov needs a momentum", SgdStep({x}, x, 1, {.nesterov = true}).p},
      {"sgd_step: sub: shapes", SgdStep({x}, other, 1).p}};
  for (const auto& [begin, result] : cases) {
    EXPECT_THAT(std::string(result.status().message()), StartsWith(begin));
  }
}

TEST_F(CompositionTrainingTest, AFailedInputIsTheErrorOfTheResult) {
  const Tensor failed = Tensor::Failed(absl::ResourceExhaustedError("the root of it"));
  const Tensor x = Floats({1}), classes = Classes({0});
  const Tensor results[] = {LeakyRelu(failed),
                            GeluBackward(x, failed),
                            GeluBackward(failed, x),
                            MseLoss(x, failed),
                            MseLossBackward(failed, x, x),
                            NllLoss(failed, classes),
                            NllLossBackward(failed, x, FromScalar(first_, 0)),
                            EmbeddingBackward(failed, classes, 2),
                            SliceBackward(failed, {2}),
                            DropoutBackward(x, failed, 0.5),
                            SgdStep({x}, failed, 1).p};
  for (const Tensor& result : results) EXPECT_EQ(result.status(), failed.status());
}

}  // namespace
}  // namespace tensord::integration
