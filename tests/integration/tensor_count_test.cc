// The number of tensors that the client's functions make. An op makes only its outputs. A function
// that runs several ops makes a tensor for each output of each of them. The numbers must match
// exactly; a change may only lower them.
#include <functional>
#include <string>
#include <vector>

#include "tensord/tests/integration/client_fixture.h"

namespace tensord::integration {
namespace {

using Tensors = std::vector<Tensor>;

struct Counted {
  const char* name;
  int tensors;
  std::function<Tensors()> call;
};

class TensorCountTest : public ClientFixture {
 protected:
  void Compare(const std::vector<Counted>& functions) {
    for (const Counted& function : functions) {
      const uint64_t before = NextHandle();
      const Tensors results = function.call();
      EXPECT_EQ(NextHandle() - before - 1, function.tensors) << function.name;
      for (const Tensor& result : results) EXPECT_TRUE(result.Wait().ok()) << function.name;
    }
  }

  // Makes a tensor, and returns its handle. Handles are consecutive numbers.
  uint64_t NextHandle() const { return Zeros(first_, {}).handle(); }

  const Tensor& x() {
    if (!x_.ok()) x_ = FromVector<float>(first_, {2, 3}, {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f});
    return x_;
  }
  const Tensor& one() {
    if (!one_.ok()) one_ = Ones(first_, {});
    return one_;
  }
  const Tensor& classes() {
    if (!classes_.ok()) classes_ = FromVector<int64_t>(first_, {2}, {0, 2});
    return classes_;
  }

 private:
  Tensor x_, one_, classes_;
};

TEST_F(TensorCountTest, CompositionsMakeOnlyTheirOutputs) {
  const Tensor &x = this->x(), &g = one(), &classes = this->classes();
  const Tensor gates = FromVector<float>(first_, {2, 12}, std::vector<float>(24, 0.5f));
  const Tensor gru = FromVector<float>(first_, {2, 9}, std::vector<float>(18, 0.5f));
  const LstmCellResult lstm = LstmCell(gates, gates, x);
  const GruCellResult forward = GruCell(gru, gru, x);
  const Tensor sequence = Reshape(x, {1, 2, 3});
  const auto weights = [&](int64_t parts) {
    const Tensor one = Ones(first_, {parts * 3, 3});
    return RecurrentWeights{one, one};
  };
  const RecurrentWeights lstm_weights = weights(4), gru_weights = weights(3),
                         rnn_weights = weights(1);
  const RecurrentLayerResult lstm_layer = LstmLayer(sequence, x, x, lstm_weights),
                             gru_layer = GruLayer(sequence, x, gru_weights),
                             rnn_layer = RnnLayer(sequence, x, rnn_weights);
  const GroupNormResult norm = GroupNormWithStatistics(x, {.groups = 3});
  const CrossEntropyResult loss = CrossEntropyWithStatistics(x, classes);
  Compare({
      {"SigmoidBackward", 1, [&] { return Tensors{SigmoidBackward(x, x)}; }},
      {"TanhBackward", 1, [&] { return Tensors{TanhBackward(x, x)}; }},
      {"SiluBackward", 1, [&] { return Tensors{SiluBackward(x, x)}; }},
      {"GeluBackward", 1, [&] { return Tensors{GeluBackward(x, x)}; }},
      {"Softplus", 1, [&] { return Tensors{Softplus(x)}; }},
      {"SoftplusBackward", 1, [&] { return Tensors{SoftplusBackward(x, x)}; }},
      {"Threshold", 1, [&] { return Tensors{Threshold(x, 0, 1)}; }},
      {"ThresholdBackward", 1, [&] { return Tensors{ThresholdBackward(x, x)}; }},
      {"LeakyRelu", 1, [&] { return Tensors{LeakyRelu(x)}; }},
      {"LeakyReluBackward", 1, [&] { return Tensors{LeakyReluBackward(x, x)}; }},
      {"Elu", 1, [&] { return Tensors{Elu(x)}; }},
      {"EluBackward", 1, [&] { return Tensors{EluBackward(x, x)}; }},
      {"Hardtanh", 1, [&] { return Tensors{Hardtanh(x)}; }},
      {"HardtanhBackward", 1, [&] { return Tensors{HardtanhBackward(x, x)}; }},
      {"Hardsigmoid", 1, [&] { return Tensors{Hardsigmoid(x)}; }},
      {"HardsigmoidBackward", 1, [&] { return Tensors{HardsigmoidBackward(x, x)}; }},
      {"Hardswish", 1, [&] { return Tensors{Hardswish(x)}; }},
      {"HardswishBackward", 1, [&] { return Tensors{HardswishBackward(x, x)}; }},
      {"Mish", 1, [&] { return Tensors{Mish(x)}; }},
      {"MishBackward", 1, [&] { return Tensors{MishBackward(x, x)}; }},
      {"LogSigmoid", 1, [&] { return Tensors{LogSigmoid(x)}; }},
      {"LogSigmoidBackward", 1, [&] { return Tensors{LogSigmoidBackward(x, x)}; }},
      {"Logit", 1, [&] { return Tensors{Logit(x)}; }},
      {"LogitBackward", 1, [&] { return Tensors{LogitBackward(x, x)}; }},
      {"Softshrink", 1, [&] { return Tensors{Softshrink(x)}; }},
      {"Hardshrink", 1, [&] { return Tensors{Hardshrink(x)}; }},
      {"ShrinkBackward", 1, [&] { return Tensors{ShrinkBackward(x, x)}; }},
      {"Prelu", 1, [&] { return Tensors{Prelu(x, x)}; }},
      {"PreluBackward", 2,
       [&] {
         const PreluGradients gradients = PreluBackward(x, x, x);
         return Tensors{gradients.x, gradients.weight};
       }},
      {"Glu", 1, [&] { return Tensors{Glu(x, 0)}; }},
      {"GluBackward and Glu", 2, [&] { return Tensors{GluBackward(Glu(x, 0), x, 0)}; }},
      {"LogSumExp", 1, [&] { return Tensors{LogSumExp(x)}; }},
      {"MseLoss", 1, [&] { return Tensors{MseLoss(x, x)}; }},
      {"MseLossBackward", 1, [&] { return Tensors{MseLossBackward(g, x, x)}; }},
      {"L1Loss", 1, [&] { return Tensors{L1Loss(x, x)}; }},
      {"L1LossBackward", 1, [&] { return Tensors{L1LossBackward(g, x, x)}; }},
      {"SmoothL1Loss", 1, [&] { return Tensors{SmoothL1Loss(x, x)}; }},
      {"SmoothL1LossBackward", 1, [&] { return Tensors{SmoothL1LossBackward(g, x, x)}; }},
      {"HuberLoss", 1, [&] { return Tensors{HuberLoss(x, x)}; }},
      {"HuberLossBackward", 1, [&] { return Tensors{HuberLossBackward(g, x, x)}; }},
      {"BinaryCrossEntropy", 1, [&] { return Tensors{BinaryCrossEntropy(x, x)}; }},
      {"BinaryCrossEntropyBackward", 1,
       [&] { return Tensors{BinaryCrossEntropyBackward(g, x, x)}; }},
      {"BinaryCrossEntropyWithLogits", 1,
       [&] { return Tensors{BinaryCrossEntropyWithLogits(x, x)}; }},
      {"BinaryCrossEntropyWithLogitsBackward", 1,
       [&] { return Tensors{BinaryCrossEntropyWithLogitsBackward(g, x, x)}; }},
      {"KlDiv", 1, [&] { return Tensors{KlDiv(x, x)}; }},
      {"KlDivBackward", 1, [&] { return Tensors{KlDivBackward(g, x, x)}; }},
      {"NllLoss", 2, [&] { return Tensors{NllLoss(x, classes)}; }},
      {"NllLossBackward", 1, [&] { return Tensors{NllLossBackward(g, x, classes)}; }},
      {"CrossEntropyWithStatistics", 3,
       [&] {
         const CrossEntropyResult result = CrossEntropyWithStatistics(x, classes);
         return Tensors{result.loss, result.lse, result.total};
       }},
      {"CrossEntropyBackward", 1,
       [&] { return Tensors{CrossEntropyBackward(g, x, loss, classes)}; }},
      {"GroupNormWithStatistics", 3,
       [&] {
         const GroupNormResult result = GroupNormWithStatistics(x, {.groups = 3});
         return Tensors{result.y, result.mean, result.rstd};
       }},
      {"GroupNormBackward", 3,
       [&] {
         const NormGradients result = GroupNormBackward(x, x, norm, {}, {.groups = 3});
         return Tensors{result.x, result.weight, result.bias};
       }},
      {"LstmCell", 3,
       [&] {
         const LstmCellResult result = LstmCell(gates, gates, x);
         return Tensors{result.h, result.c, result.gates};
       }},
      {"LstmCellBackward", 3,
       [&] {
         const LstmCellGradients result = LstmCellBackward(x, x, x, lstm);
         return Tensors{result.gates, result.c, result.bias};
       }},
      {"GruCell", 2,
       [&] {
         const GruCellResult result = GruCell(gru, gru, x);
         return Tensors{result.h, result.gates};
       }},
      {"GruCellBackward", 5,
       [&] {
         const GruCellGradients result = GruCellBackward(x, forward);
         return Tensors{result.input_gates, result.hidden_gates, result.h, result.input_bias,
                        result.hidden_bias};
       }},
      {"LstmLayer", 5, [&] { return Tensors{LstmLayer(sequence, x, x, lstm_weights).output}; }},
      {"LstmLayerBackward", 7,
       [&] {
         return Tensors{LstmLayerBackward(sequence, x, x, sequence, x, x, lstm_weights, lstm_layer)
                            .weights.ih};
       }},
      {"GruLayer", 3, [&] { return Tensors{GruLayer(sequence, x, gru_weights).output}; }},
      {"GruLayerBackward", 6,
       [&] {
         return Tensors{GruLayerBackward(sequence, x, sequence, x, gru_weights, gru_layer).x};
       }},
      {"RnnLayer", 2, [&] { return Tensors{RnnLayer(sequence, x, rnn_weights).output}; }},
      {"RnnLayerBackward", 6,
       [&] {
         return Tensors{RnnLayerBackward(sequence, x, sequence, x, rnn_weights, rnn_layer).h};
       }},
  });
}

TEST_F(TensorCountTest, OtherFunctionsMakeFewTensors) {
  const Tensor &x = this->x(), &classes = this->classes();
  const Tensor b = Gt(x, 0.25), weight = Reshape(x, {3, 2});
  Compare({
      {"Square", 1, [&] { return Tensors{Square(x)}; }},
      {"Reciprocal", 1, [&] { return Tensors{Reciprocal(x)}; }},
      {"Clamp", 1, [&] { return Tensors{Clamp(x, 0, 1)}; }},
      {"IsNan", 1, [&] { return Tensors{IsNan(x)}; }},
      {"IsInf", 1, [&] { return Tensors{IsInf(x)}; }},
      {"IsFinite", 1, [&] { return Tensors{IsFinite(x)}; }},
      {"SignBit", 1, [&] { return Tensors{SignBit(x)}; }},
      {"LogicalAnd", 1, [&] { return Tensors{LogicalAnd(b, b)}; }},
      {"LogicalOr", 1, [&] { return Tensors{LogicalOr(b, b)}; }},
      {"LogicalXor", 1, [&] { return Tensors{LogicalXor(b, b)}; }},
      {"LogicalNot", 1, [&] { return Tensors{LogicalNot(x)}; }},
      {"BitwiseNot", 1, [&] { return Tensors{BitwiseNot(classes)}; }},
      {"Lerp", 1, [&] { return Tensors{Lerp(x, x, 0.25)}; }},
      {"Addcmul", 1, [&] { return Tensors{Addcmul(x, x, x)}; }},
      {"Addcdiv", 1, [&] { return Tensors{Addcdiv(x, x, x)}; }},
      {"IndexSelect", 1, [&] { return Tensors{IndexSelect(x, 1, classes)}; }},
      {"Embedding", 1, [&] { return Tensors{Embedding(classes, weight)}; }},
      {"EmbeddingBackward", 1, [&] { return Tensors{EmbeddingBackward(x, classes, 3)}; }},
      {"OneHot", 1, [&] { return Tensors{OneHot(classes, 3)}; }},
      {"MaskedFill", 1, [&] { return Tensors{MaskedFill(x, b, 1)}; }},
      {"Pad", 1,
       [&] {
         return Tensors{Pad(x, {1, 1})};
       }},
      {"Flip", 1, [&] { return Tensors{Flip(x, {0})}; }},
      {"Roll", 1, [&] { return Tensors{Roll(x, 1, 1)}; }},
      {"Unsqueeze", 1, [&] { return Tensors{Unsqueeze(x, 0)}; }},
      {"Flatten", 1, [&] { return Tensors{Flatten(x)}; }},
      {"Select", 2, [&] { return Tensors{Select(x, 0, 1)}; }},
      {"Stack", 3,
       [&] {
         return Tensors{Stack({x, x})};
       }},
      {"Tril", 1, [&] { return Tensors{Tril(x)}; }},
      {"Triu", 1, [&] { return Tensors{Triu(x)}; }},
      {"Var", 1, [&] { return Tensors{Var(x)}; }},
      {"Std", 1, [&] { return Tensors{Std(x)}; }},
      {"All", 1, [&] { return Tensors{All(x)}; }},
      {"Any", 1, [&] { return Tensors{Any(x)}; }},
  });
}

}  // namespace
}  // namespace tensord::integration
