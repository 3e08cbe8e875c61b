// The ops that compute gradients, compared with finite differences in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tensord/tests/unit/device/op_runner.h"

namespace tensord::server {
namespace {

using Ints = std::vector<int64_t>;

constexpr double kStep = 1e-5;

HostTensor Doubles(const Shape& shape, int seed) {
  return Spread(DType::kFloat64, shape, -2, 2, seed);
}
HostTensor Classes(const std::vector<double>& values) {
  return MakeTensor(DType::kInt64, {static_cast<int64_t>(values.size())}, values);
}

class GradientsTest : public testing::Test {
 protected:
  std::vector<HostTensor> Run(const char* op, const std::vector<HostTensor>& inputs,
                              const Attributes& attrs) {
    auto outputs = runner_.RunAll(op, inputs, attrs);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    return outputs.ok() ? *std::move(outputs) : std::vector<HostTensor>(5);
  }

  // Returns the derivatives of Σ gradient · y by the elements of input `k`, where y is the first
  // output of the op.
  std::vector<double> Differences(const char* op, const std::vector<HostTensor>& inputs,
                                  const Attributes& attrs, int k, const HostTensor& gradient) {
    const std::vector<double> values = inputs[k].ToDoubles(), factors = gradient.ToDoubles();
    const auto loss_at = [&](size_t i, double value) {
      std::vector<HostTensor> moved = inputs;
      std::vector<double> of_input = values;
      of_input[i] = value;
      moved[k] = MakeTensor(DType::kFloat64, inputs[k].spec.shape, of_input);
      const std::vector<double> y = Run(op, moved, attrs)[0].ToDoubles();
      double sum = 0;
      for (size_t j = 0; j < y.size(); ++j) sum += y[j] * factors[j];
      return sum;
    };
    std::vector<double> differences(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      differences[i] =
          (loss_at(i, values[i] + kStep) - loss_at(i, values[i] - kStep)) / (2 * kStep);
    }
    return differences;
  }

  void ExpectNear(const HostTensor& got, const std::vector<double>& expected,
                  const std::string& what) {
    const std::vector<double> values = got.ToDoubles();
    ASSERT_EQ(values.size(), expected.size()) << what;
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(values[i], expected[i], 1e-6) << what << " at " << i;
    }
  }

  OpRunner runner_;
};

TEST_F(GradientsTest, OfSoftmaxAndItsLogarithm) {
  const HostTensor x = Doubles({4, 6, 3}, 1), g = Doubles({4, 6, 3}, 2);
  for (const bool log : {false, true}) {
    const char* const op = log ? "log_softmax" : "softmax";
    for (const int64_t axis : {1, 2}) {
      const HostTensor y = Run(op, {x}, {{"axis", axis}})[0];
      ExpectNear(Run("softmax_backward", {g, y}, {{"axis", axis}, {"log", log}})[0],
                 Differences(op, {x}, {{"axis", axis}}, 0, g), op);
    }
  }
}

TEST_F(GradientsTest, OfLayerNormAndRmsNorm) {
  const HostTensor x = Doubles({5, 2, 4}, 1), g = Doubles({5, 2, 4}, 2);
  const HostTensor weight = Doubles({2, 4}, 3), bias = Doubles({2, 4}, 4);
  for (const bool center : {true, false}) {
    const Attributes attrs = {{"normalized_rank", int64_t{2}}, {"center", center}};
    const std::vector<HostTensor> inputs = {x, weight, bias};
    const std::vector<HostTensor> forward = Run("layer_norm", inputs, attrs);
    std::vector<HostTensor> operands = {g, x, forward.back()};
    if (center) operands.push_back(forward[1]);
    operands.push_back(weight);
    Attributes backward = attrs;
    backward.Set("gradients", Ints{0, 1, 2});
    const std::vector<HostTensor> gradients = Run("layer_norm_backward", operands, backward);
    for (int k = 0; k < 3; ++k) {
      ExpectNear(gradients[k], Differences("layer_norm", inputs, attrs, k, g),
                 "input " + std::to_string(k));
    }
  }
}

TEST_F(GradientsTest, OfBatchNorm) {
  const HostTensor x = Doubles({4, 3, 5}, 1), g = Doubles({4, 3, 5}, 2);
  const HostTensor running_mean = Doubles({3}, 3), weight = Doubles({3}, 5), bias = Doubles({3}, 6);
  const HostTensor running_var = Spread(DType::kFloat64, {3}, 0.5, 2, 4);
  for (const bool training : {true, false}) {
    const Attributes attrs = {{"training", training}};
    const std::vector<HostTensor> inputs = {x, running_mean, running_var, weight, bias};
    HostTensor mean = running_mean, invstd;
    if (training) {
      const std::vector<HostTensor> forward = Run("batch_norm", inputs, attrs);
      mean = forward[1];
      invstd = forward[2];
    } else {
      std::vector<double> values = running_var.ToDoubles();
      for (double& value : values) value = 1 / std::sqrt(value + 1e-5);
      invstd = MakeTensor(DType::kFloat64, {3}, values);
    }
    const std::vector<HostTensor> gradients =
        Run("batch_norm_backward", {g, x, mean, invstd, weight}, attrs);
    const int operands[] = {0, 3, 4};
    for (int k = 0; k < 3; ++k) {
      ExpectNear(gradients[k], Differences("batch_norm", inputs, attrs, operands[k], g),
                 "operand " + std::to_string(k));
    }
  }
}

TEST_F(GradientsTest, OfCrossEntropy) {
  const HostTensor x = Doubles({5, 4}, 1), g = Doubles({5}, 2), target = Classes({3, 0, 2, 1, 3});
  const HostTensor weight = Spread(DType::kFloat64, {4}, 0.5, 2, 3);
  for (const double smoothing : {0.0, 0.2}) {
    const Attributes attrs = {{"ignore_index", int64_t{2}}, {"label_smoothing", smoothing}};
    const std::vector<HostTensor> inputs = {x, target, weight};
    const HostTensor lse = Run("cross_entropy", inputs, attrs)[1];
    ExpectNear(Run("cross_entropy_backward", {g, x, lse, target, weight}, attrs)[0],
               Differences("cross_entropy", inputs, attrs, 0, g), "x");
  }
}

TEST_F(GradientsTest, OfConvolution) {
  struct ConvCase {
    Ints x, weight;
    Attributes attrs;
  };
  const ConvCase cases[] = {
      {{2, 3, 9}, {4, 3, 3}, {{"padding", Ints{2, 0}}, {"dilation", Ints{2}}}},
      {{2, 2, 6, 7}, {3, 2, 3, 2}, {{"stride", Ints{2, 1}}, {"padding", Ints{1}}}},
      {{1, 4, 5, 6}, {6, 2, 2, 3}, {{"groups", int64_t{2}}, {"padding", Ints{0, 1, 2, 0}}}},
      {{2, 3, 5, 5}, {3, 1, 3, 3}, {{"groups", int64_t{3}}, {"padding", Ints{1}}}},
      {{1, 2, 4, 3, 5}, {2, 2, 2, 2, 3}, {{"stride", Ints{1, 1, 2}}, {"padding", Ints{1}}}},
  };
  for (const ConvCase& c : cases) {
    const HostTensor x = Doubles(Shape(absl::MakeConstSpan(c.x)), 1);
    const HostTensor weight = Doubles(Shape(absl::MakeConstSpan(c.weight)), 2);
    const std::vector<HostTensor> inputs = {x, weight};
    const HostTensor g = Doubles(Run("conv", inputs, c.attrs)[0].spec.shape, 3);
    Attributes backward = c.attrs;
    backward.Set("shape", c.x);
    ExpectNear(Run("conv_backward_input", {g, weight}, backward)[0],
               Differences("conv", inputs, c.attrs, 0, g), "x");
    backward.Set("shape", c.weight);
    ExpectNear(Run("conv_backward_weight", {g, x}, backward)[0],
               Differences("conv", inputs, c.attrs, 1, g), "weight");
  }
}

// Compares the gradients of q, k, v and, if it is floating, of the mask.
struct AttentionGradientsCase {
  Shape q, k, v;
  Attributes attrs = {};
  std::vector<HostTensor> mask = {};
};

TEST_F(GradientsTest, OfAttention) {
  const Attributes dropout = {{"dropout_p", 0.25}, {"seed", int64_t{3}}};
  const AttentionGradientsCase kCases[] = {
      {{3, 4}, {5, 4}, {5, 2}},
      {{4, 3, 4}, {2, 5, 4}, {2, 5, 2}, {{"causal", true}, {"scale", 0.7}}},
      {{2, 5, 4}, {2, 3, 4}, {2, 3, 2}, {{"causal", true}}},
      {{2, 3, 4}, {1, 5, 4}, {1, 5, 2}, dropout},
      {{2, 3, 4}, {2, 5, 4}, {2, 5, 2}, {}, {Doubles({3, 5}, 9)}},
      {{2, 3, 4}, {2, 5, 4}, {2, 5, 2}, dropout, {Doubles({2, 1, 5}, 9)}},
      {{2, 3, 4},
       {2, 5, 4},
       {2, 5, 2},
       {},
       {MakeTensor(DType::kBool, {3, 5}, {1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1})}}};
  for (const AttentionGradientsCase& c : kCases) {
    std::vector<HostTensor> inputs = {Doubles(c.q, 1), Doubles(c.k, 2), Doubles(c.v, 3)};
    inputs.insert(inputs.end(), c.mask.begin(), c.mask.end());
    const std::vector<HostTensor> forward = Run("sdpa", inputs, c.attrs);
    const HostTensor g = Doubles(forward[0].spec.shape, 4);
    Attributes attrs = c.attrs;
    int operands = 3;
    if (!c.mask.empty() && c.mask[0].spec.dtype == DType::kFloat64) {
      attrs.Set("mask_gradient", true);
      operands = 4;
    }
    std::vector<HostTensor> of_gradient = {g,         inputs[0],  inputs[1],
                                           inputs[2], forward[0], forward[1]};
    of_gradient.insert(of_gradient.end(), c.mask.begin(), c.mask.end());
    const std::vector<HostTensor> gradients = Run("sdpa_backward", of_gradient, attrs);
    for (int i = 0; i < operands; ++i) {
      ExpectNear(gradients[i], Differences("sdpa", inputs, c.attrs, i, g),
                 c.q.ToString() + " operand " + std::to_string(i));
    }
  }
}

TEST_F(GradientsTest, OfPooling) {
  const HostTensor x = Doubles({2, 7, 8}, 1);
  const Attributes windows = {{"kernel", Ints{3, 2}}, {"stride", Ints{2, 1}}, {"padding", Ints{1}}};
  Attributes backward = windows;
  backward.Set("size", Ints{7, 8});
  const std::vector<HostTensor> pooled = Run("max_pool", {x}, windows);
  const HostTensor g = Doubles(pooled[0].spec.shape, 2);
  ExpectNear(Run("max_pool_backward", {g, pooled[1]}, backward)[0],
             Differences("max_pool", {x}, windows, 0, g), "max_pool");
  for (const bool count_padding : {false, true}) {
    Attributes attrs = windows, of_gradient = backward;
    attrs.Set("count_include_pad", count_padding);
    of_gradient.Set("count_include_pad", count_padding);
    ExpectNear(Run("avg_pool_backward", {g}, of_gradient)[0],
               Differences("avg_pool", {x}, attrs, 0, g), "avg_pool");
  }
}

}  // namespace
}  // namespace tensord::server
