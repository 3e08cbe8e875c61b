// The modules of client/nn: their results, parameters and errors. compare_modules_with_torch.py
// compares them with PyTorch's.
#include <cmath>
#include <vector>

#include "tensord/client/examples/gpt2.h"
#include "tensord/client/examples/resnet18.h"
#include "tensord/tests/expect_error.h"
#include "tensord/tests/integration/client_fixture.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;
using testing::ElementsAre;
using testing::FloatNear;
using testing::Pointwise;

class ModulesTest : public ClientFixture {
 protected:
  // Returns the largest difference of two tensors of one shape.
  double Difference(const Tensor& a, const Tensor& b) {
    EXPECT_EQ(a.shape(), b.shape()) << a.status() << b.status();
    const auto difference = Max(Abs(a - b)).Item<double>();
    EXPECT_TRUE(difference.ok()) << difference.status();
    return difference.ok() ? *difference : NAN;
  }
  Tensor Random(const Shape& shape, int64_t seed) { return Normal(first_, shape, seed); }
};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST_F(ModulesTest, ConvolutionTakesImagesWithAndWithoutABatch) {
  const nn::Conv2d layer(3, 4, {3}, {.stride = {2}, .padding = {1}, .device = first_});
  const Tensor x = Random({2, 3, 5, 6}, 1);
  const Tensor y = layer.Forward(x);
  EXPECT_EQ(y.shape(), Shape({2, 4, 3, 3}));
  const Tensor image = Reshape(Slice(x, {1}, {2}), {3, 5, 6});
  EXPECT_LT(Difference(layer.Forward(image), Reshape(Slice(y, {1}, {2}), {4, 3, 3})), 1e-5);
  ExpectError(layer.Forward(Reshape(x, {6, 30})).status(), Code::kInvalidArgument,
              {"conv", "2 spatial axes", "[6, 30]"});
}

TEST_F(ModulesTest, ConvolutionWithAKernelOfOneIsALinearLayer) {
  const nn::Conv1d layer(3, 4, {1}, {.activation = Activation::kRelu, .device = first_});
  const Tensor x = Random({2, 3, 5}, 1);
  const Tensor weight = Reshape(layer.weight(), {4, 3});
  const Tensor wanted = Relu(Linear(Permute(x, {0, 2, 1}), weight, layer.bias()));
  EXPECT_LT(Difference(layer.Forward(x), Permute(wanted, {0, 2, 1})), 1e-5);
}

TEST_F(ModulesTest, PoolsGiveTheLargestElementsAndTheMeans) {
  const Tensor x = FromVector<float>(first_, {1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_THAT(*nn::MaxPool2d({.kernel = {2}}).Forward(x).Read<float>(), ElementsAre(6, 8));
  EXPECT_THAT(*nn::AvgPool2d({.kernel = {1, 2}}).Forward(x).Read<float>(),
              ElementsAre(1.5, 3.5, 5.5, 7.5));
  EXPECT_THAT(*nn::AdaptiveAvgPool2d({1}).Forward(x).Read<float>(), ElementsAre(4.5));
  EXPECT_THAT(*nn::AdaptiveAvgPool2d({2, 1}).Forward(x).Read<float>(), ElementsAre(2.5, 6.5));
  ExpectError(nn::AdaptiveAvgPool2d({1, 3}).Forward(x).status(), Code::kUnimplemented,
              {"AdaptiveAvgPool2d", "multiples"});
  ExpectError(nn::MaxPool2d({.kernel = {2}}).Forward(Floats({1})).status(), Code::kInvalidArgument,
              {"nn::MaxPool2d", "(N,C,H,W)"});
}

TEST_F(ModulesTest, BatchNormUsesRunningStatisticsInEvaluationOnly) {
  nn::BatchNorm1d layer(2, {.eps = 0});
  ASSERT_TRUE(layer
                  .LoadStateDict({{"weight", Floats({2, 1})},
                                  {"bias", Floats({0, 5})},
                                  {"running_mean", Floats({1, 0})},
                                  {"running_var", Floats({4, 1})},
                                  {"num_batches_tracked", FromScalar(first_, int64_t{9})}})
                  .ok());
  const Tensor x = FromVector<float>(first_, {2, 2}, {1, 3, 5, 5});
  EXPECT_THAT(*layer.Forward(x).Read<float>(), Pointwise(FloatNear(1e-5f), {-2.f, 4.f, 2.f, 6.f}))
      << "modules begin in training mode";
  layer.Eval();
  EXPECT_THAT(*layer.Forward(x).Read<float>(), Pointwise(FloatNear(1e-5f), {0.f, 8.f, 4.f, 10.f}));
  ExpectError(layer.Forward(Floats({1})).status(), Code::kInvalidArgument,
              {"nn::BatchNorm1d", "2 or 3"});
}

TEST_F(ModulesTest, BuffersBelongToTheStateButNotToTheParameters) {
  const nn::BatchNorm2d layer(3, {.device = first_});
  EXPECT_EQ(layer.NumParameters(), 6);
  EXPECT_EQ(layer.Parameters().size(), 2);
  EXPECT_EQ(layer.GetStateDict().size(), 5);
  EXPECT_THAT(*layer.parameter("running_var").Read<float>(), ElementsAre(1, 1, 1));
}

TEST_F(ModulesTest, NormsCheckTheNormalizedShape) {
  const nn::LayerNorm layer_norm({2, 3}, {.device = first_});
  EXPECT_LT(std::abs(*Mean(layer_norm.Forward(Random({4, 2, 3}, 1))).Item<double>()), 1e-6);
  ExpectError(layer_norm.Forward(Random({4, 3, 2}, 1)).status(), Code::kInvalidArgument,
              {"nn::LayerNorm", "[4, 3, 2]", "[2, 3]"});
  const nn::RMSNorm rms_norm({2}, {.eps = 0, .device = first_});
  EXPECT_THAT(*rms_norm.Forward(Floats({3, 3})).Read<float>(),
              Pointwise(FloatNear(1e-6f), {1.f, 1.f}));
}

TEST_F(ModulesTest, RmsNormOf16BitElementsHasTheEpsilonOfFloat32) {
  const nn::RMSNorm rms_norm({2}, {.device = first_, .dtype = DType::kBFloat16});
  const Tensor x = Full(first_, {2}, 2e-3, {.dtype = DType::kBFloat16});
  EXPECT_NEAR(*Mean(rms_norm.Forward(x).To(DType::kFloat32)).Item<float>(), 0.985, 0.005);
}

TEST_F(ModulesTest, EmbeddingReadsRows) {
  nn::Embedding table(3, 2);
  ASSERT_TRUE(
      table.LoadStateDict({{"weight", FromVector<float>(first_, {3, 2}, {0, 1, 2, 3, 4, 5})}})
          .ok());
  const Tensor indices = FromVector<int64_t>(first_, {2, 0});
  EXPECT_THAT(*table.Forward(indices).Read<float>(), ElementsAre(4, 5, 0, 1));
  EXPECT_EQ(table.ToString(), "Embedding(3, 2)");
}

// With weights of zero, the gates are the biases.
TEST_F(ModulesTest, LstmComputesOneStepByItsFormula) {
  nn::LSTM lstm(1, 1);
  const Tensor zeros = Zeros(first_, {4, 1});
  ASSERT_TRUE(lstm.LoadStateDict({{"weight_ih_l0", zeros},
                                  {"weight_hh_l0", zeros},
                                  {"bias_ih_l0", Floats({1, 2, 3, 4})},
                                  {"bias_hh_l0", Floats({0.5, 0, 0, 0})}})
                  .ok());
  const nn::LSTMResult result = lstm.Run(
      Zeros(first_, {1, 1}), nn::LSTMState{Full(first_, {1, 1}, 7.0), Full(first_, {1, 1}, 8.0)});
  const double c = Sigmoid(2) * 8 + Sigmoid(1.5) * std::tanh(3);
  EXPECT_NEAR(*result.state.c.Item<double>(), c, 1e-5);
  EXPECT_NEAR(*result.output.Item<double>(), Sigmoid(4) * std::tanh(c), 1e-5);
  EXPECT_EQ(result.state.h.shape(), Shape({1, 1}));
}

TEST_F(ModulesTest, GruComputesOneStepByItsFormula) {
  nn::GRU gru(1, 1);
  const Tensor zeros = Zeros(first_, {3, 1});
  ASSERT_TRUE(gru.LoadStateDict({{"weight_ih_l0", zeros},
                                 {"weight_hh_l0", zeros},
                                 {"bias_ih_l0", Floats({1, 2, 3})},
                                 {"bias_hh_l0", Floats({0, 0, 4})}})
                  .ok());
  const nn::GRUResult result = gru.Run(Zeros(first_, {1, 1}), Full(first_, {1, 1}, 7.0));
  const double z = Sigmoid(2), n = std::tanh(3 + Sigmoid(1) * 4);
  EXPECT_NEAR(*result.h.Item<double>(), (1 - z) * n + z * 7, 1e-5);
}

TEST_F(ModulesTest, BackwardDirectionReadsTheSequenceFromItsEnd) {
  nn::LSTM lstm(3, 4, {.bidirectional = true, .device = first_, .seed = 1});
  nn::StateDict state = lstm.GetStateDict();
  for (auto& [name, value] : state) {
    if (const size_t end = name.find("_reverse"); end != std::string::npos) {
      value = state.at(name.substr(0, end));
    }
  }
  ASSERT_TRUE(lstm.LoadStateDict(state).ok());
  const Tensor x = Random({5, 2, 3}, 2);
  const Tensor y = lstm.Forward(x), flipped = lstm.Forward(Flip(x, {0}));
  const auto half = [](const Tensor& t, int64_t i) {
    return Slice(t, {4 * i}, {4 * i + 4}, {.axes = {2}});
  };
  EXPECT_LT(Difference(half(y, 1), Flip(half(flipped, 0), {0})), 1e-6);
}

TEST_F(ModulesTest, RecurrentLayersContinueFromAState) {
  const nn::GRU gru(3, 4, {.num_layers = 2, .batch_first = true, .device = first_, .seed = 1});
  const Tensor x = Random({2, 6, 3}, 2);
  const nn::GRUResult all = gru.Run(x);
  const nn::GRUResult begin = gru.Run(Slice(x, {0}, {4}, {.axes = {1}}));
  const nn::GRUResult end = gru.Run(Slice(x, {4}, {6}, {.axes = {1}}), begin.h);
  EXPECT_LT(Difference(Concat({begin.output, end.output}, 1), all.output), 1e-6);
  EXPECT_LT(Difference(end.h, all.h), 1e-6);
  ExpectError(gru.Run(x, Zeros(first_, {1, 2, 4})).output.status(), Code::kInvalidArgument,
              {"nn::GRU", "[1, 2, 4]", "[2, 2, 4]"});
  ExpectError(gru.Forward(Zeros(first_, {2, 6, 4})).status(), Code::kInvalidArgument,
              {"nn::GRU", "[2, 6, 4]", "(N,L,3)"});
}

TEST_F(ModulesTest, RecurrentLayersRunAsAProgram) {
  const nn::LSTM lstm(3, 4, {.device = first_, .seed = 1});
  const Tensor x = Random({5, 2, 3}, 2);
  const auto program = Program::Record(first_, {x.spec()}, [&](absl::Span<const Tensor> in) {
    return std::vector<Tensor>{lstm.Forward(in[0])};
  });
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_LT(Difference(program->Run({x})[0], lstm.Forward(x)), 1e-6);
}

TEST_F(ModulesTest, AttentionLeavesOutMaskedKeys) {
  const nn::MultiheadAttention layer(8, 2, {.batch_first = true, .device = first_, .seed = 1});
  const Tensor query = Random({2, 3, 8}, 2), memory = Random({2, 5, 8}, 3);
  const Tensor shorter = Slice(memory, {0}, {4}, {.axes = {1}});
  const Tensor wanted = layer.Attend(query, shorter, shorter);
  const Tensor last = Eq(Arange(first_, 5), 4);
  EXPECT_LT(Difference(layer.Attend(query, memory, memory, {.attention = last}), wanted), 1e-5);
  EXPECT_LT(
      Difference(layer.Attend(query, memory, memory, {.key_padding = BroadcastTo(last, {2, 5})}),
                 wanted),
      1e-5);
  const Tensor transposed = Zeros(first_, {5, 2}, {.dtype = DType::kBool});
  ExpectError(layer.Attend(query, memory, memory, {.key_padding = transposed}).status(),
              Code::kInvalidArgument, {"key_padding", "bool[5, 2]", "bool[2, 5]"});
  const Tensor added = Where(last, -1e30, Zeros(first_, {5}));
  EXPECT_LT(Difference(layer.Attend(query, memory, memory, {.attention = added}), wanted), 1e-5);
}

TEST_F(ModulesTest, BiasesOfAttentionBeginWithZeros) {
  const nn::MultiheadAttention layer(4, 2, {.device = first_, .seed = 1});
  EXPECT_THAT(*layer.parameter("out_proj.bias").Read<float>(), ElementsAre(0, 0, 0, 0));
  EXPECT_GT(*CountNonzero(layer.parameter("out_proj.weight")).Item<int64_t>(), 0);
}

TEST_F(ModulesTest, CausalAttentionDoesNotLookAhead) {
  const nn::MultiheadAttention layer(8, 2, {.batch_first = true, .device = first_, .seed = 1});
  const Tensor x = Random({1, 4, 8}, 2), y = layer.Attend(x, x, x, {.is_causal = true});
  const Tensor begin = Slice(x, {0}, {2}, {.axes = {1}});
  EXPECT_LT(Difference(Slice(y, {0}, {2}, {.axes = {1}}),
                       layer.Attend(begin, begin, begin, {.is_causal = true})),
            1e-5);
}

TEST_F(ModulesTest, AttentionOverOneKeyReturnsItsValue) {
  const nn::MultiheadAttention layer(4, 2, {.device = first_, .seed = 1});
  const Tensor x = Random({1, 4}, 2), out = layer.parameter("out_proj.weight");
  const Tensor value_weight = Slice(layer.parameter("in_proj_weight"), {8}, {12});
  EXPECT_LT(Difference(layer.Forward(x),
                       Linear(Linear(x, value_weight), out, layer.parameter("out_proj.bias"))),
            1e-5);
  ExpectError(layer.Forward(Random({1, 5}, 2)).status(), Code::kInvalidArgument,
              {"MultiheadAttention", "query", "[1, 5]", "4"});
}

TEST_F(ModulesTest, EncoderLayerIsAttentionAndFeedForwardWithResiduals) {
  nn::TransformerEncoderLayer layer(
      4, 2, {.dim_feedforward = 6, .batch_first = true, .device = first_, .seed = 1});
  layer.Eval();
  const Tensor x = Random({1, 3, 4}, 2);
  const nn::StateDict state = layer.GetStateDict();
  nn::MultiheadAttention attention(4, 2, {.batch_first = true});
  nn::StateDict own;
  for (const auto& [name, value] : state) {
    if (name.rfind("self_attn.", 0) == 0) own[name.substr(10)] = value;
  }
  ASSERT_TRUE(attention.LoadStateDict(own).ok());
  const auto linear = [&](const Tensor& t, const std::string& name) {
    return Linear(t, state.at(name + ".weight"), state.at(name + ".bias"));
  };
  const Tensor y = LayerNorm(x + attention.Forward(x));
  const Tensor wanted = LayerNorm(y + linear(Relu(linear(y, "linear1")), "linear2"));
  EXPECT_LT(Difference(layer.Forward(x), wanted), 1e-5);
}

TEST_F(ModulesTest, ComposedModulesReachTheirParts) {
  class Block : public nn::Module {
   public:
    Block()
        : inner_(AddModule("inner", nn::Sequential(nn::Linear(2, 2), nn::Dropout(0.5)))),
          norm_(AddModule("norm", nn::LayerNorm({2}))) {}
    Tensor Forward(const Tensor& x) const override {
      return x + norm_->Forward(inner_->Forward(x));
    }

   private:
    std::shared_ptr<nn::Sequential> inner_;
    std::shared_ptr<nn::LayerNorm> norm_;
  };
  Block block;
  EXPECT_EQ(block.ToString(),
            "Block(\n"
            "  (inner): Sequential(\n"
            "    (0): Linear(in_features=2, out_features=2, bias=True)\n"
            "    (1): Dropout(p=0.5, inplace=False)\n"
            "  )\n"
            "  (norm): LayerNorm((2,), eps=1e-05, elementwise_affine=True, bias=True)\n"
            ")");
  ExpectError(block.Forward(Floats({1, 2})).status(), Code::kFailedPrecondition,
              {"has no values yet"});
  ASSERT_TRUE(block.To(first_).ok());
  EXPECT_EQ(block.GetStateDict().count("inner.0.weight"), 1);
  block.Eval();
  const Tensor x = Floats({1, 2});
  EXPECT_EQ(Difference(block.Forward(x), block.Forward(x)), 0) << "Eval reaches the Dropout";
  const Block copy = block;
  EXPECT_EQ(Difference(copy.Forward(x), block.Forward(x)), 0) << "copies share their parts";
}

TEST_F(ModulesTest, Gpt2WithACacheGivesTheSameLogits) {
  const examples::Gpt2Config config = {
      .vocabulary = 20, .positions = 8, .width = 16, .layers = 2, .heads = 2};
  examples::Gpt2 model(config);
  ASSERT_TRUE(model.To(first_).ok());
  const Tensor tokens = RandInt(first_, {2, 8}, 0, 20, 1);
  const Tensor wanted = model.Forward(tokens);
  examples::Gpt2::Cache cache = model.MakeCache(first_, 2);
  const int64_t used = Used(first_);
  for (const int64_t end : {3, 5, 6, 7, 8}) {  // a prompt, a part of several tokens, single ones
    const Tensor logits = model.Append(Slice(tokens, {cache.length}, {end}, {.axes = {1}}), &cache);
    EXPECT_LT(Difference(logits, Reshape(Slice(wanted, {end - 1}, {end}, {.axes = {1}}), {2, 20})),
              1e-4);
  }
  // The cache is updated in place.
  ExpectEventuallyUsed([&] { return Used(first_); }, used);
  ExpectError(model.Append(Slice(tokens, {0}, {1}, {.axes = {1}}), &cache).status(),
              Code::kInvalidArgument, {"at most 8"});
}

TEST_F(ModulesTest, TheExamplesWithModelsRun) {
  for (const std::string model : {"resnet18", "gpt2"}) {
    const std::string program = TENSORD_EXAMPLES_PATH "/example_" + model;
    const std::string command = program + " " + daemon_->address();
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    const std::string help = program + " --help | grep -q 'usage: .*MODEL'";
    EXPECT_EQ(std::system(help.c_str()), 0) << help;
  }
}

}  // namespace
}  // namespace tensord::integration
