// The network ops, compared with their definitions as compositions of other ops (common/OPS.md).
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tensord/tests/unit/device/op_runner.h"

namespace tensord::server {
namespace {

using Ints = std::vector<int64_t>;
using Tensors = std::vector<HostTensor>;

// Composes ops in one floating dtype.
class Composer {
 public:
  explicit Composer(DType dtype) : dtype_(dtype) {}

  Tensors All(const char* op, const Tensors& inputs, const Attributes& attrs = {}) {
    auto outputs = runner_.RunAll(op, inputs, attrs);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    return outputs.ok() ? *std::move(outputs) : Tensors(5);
  }
  HostTensor Run(const char* op, const Tensors& inputs, const Attributes& attrs = {}) {
    return All(op, inputs, attrs)[0];
  }
  HostTensor Number(double value) { return MakeTensor(dtype_, {}, {value}); }
  HostTensor Values(const Shape& shape, int seed, double low = -2) {
    return Spread(dtype_, shape, low, 2, seed);
  }

  HostTensor Add(const HostTensor& a, const HostTensor& b) { return Run("add", {a, b}); }
  HostTensor Sub(const HostTensor& a, const HostTensor& b) { return Run("sub", {a, b}); }
  HostTensor Mul(const HostTensor& a, const HostTensor& b) { return Run("mul", {a, b}); }
  HostTensor Div(const HostTensor& a, const HostTensor& b) { return Run("div", {a, b}); }
  HostTensor Sum(const HostTensor& x, Ints axes) {
    return Run("sum", {x}, {{"axes", std::move(axes)}, {"keepdims", true}});
  }
  HostTensor Mean(const HostTensor& x, Ints axes) {
    return Run("mean", {x}, {{"axes", std::move(axes)}, {"keepdims", true}});
  }
  HostTensor Reshape(const HostTensor& x, Ints shape) {
    return Run("reshape", {x}, {{"shape", std::move(shape)}});
  }

  void ExpectEqual(const HostTensor& got, const HostTensor& expected, const std::string& what) {
    ASSERT_EQ(got.spec.num_elements(), expected.spec.num_elements()) << what;
    const double tolerance = dtype_ == DType::kFloat64 ? 1e-12 : 1e-5;
    for (int64_t i = 0; i < got.spec.num_elements(); ++i) {
      if (got.At(i) == expected.At(i)) continue;  // both may be infinite
      EXPECT_NEAR(got.At(i), expected.At(i), tolerance * (1 + std::fabs(expected.At(i))))
          << what << " at " << i << " of " << DTypeName(dtype_);
    }
  }

 private:
  const DType dtype_;
  OpRunner runner_;
};

class DefinitionsTest : public testing::TestWithParam<DType> {
 protected:
  Composer c_{GetParam()};
};

TEST_P(DefinitionsTest, OfSoftmaxBackward) {
  const HostTensor g = c_.Values({7, 40}, 1), x = c_.Values({7, 40}, 2);
  const HostTensor y = c_.Run("softmax", {x}), log_y = c_.Run("log_softmax", {x});
  c_.ExpectEqual(c_.Run("softmax_backward", {g, y}),
                 c_.Mul(y, c_.Sub(g, c_.Sum(c_.Mul(g, y), {1}))), "softmax");
  c_.ExpectEqual(c_.Run("softmax_backward", {g, log_y}, {{"log", true}}),
                 c_.Sub(g, c_.Mul(c_.Run("exp", {log_y}), c_.Sum(g, {1}))), "log_softmax");
}

TEST_P(DefinitionsTest, OfLayerNorm) {
  const HostTensor x = c_.Values({9, 70}, 1), g = c_.Values({9, 70}, 2);
  const HostTensor weight = c_.Values({70}, 3), bias = c_.Values({70}, 4);
  for (const bool center : {true, false}) {
    const HostTensor centered = center ? c_.Sub(x, c_.Mean(x, {1})) : x;
    const HostTensor variance = c_.Mean(c_.Mul(centered, centered), {1});
    const HostTensor rstd = c_.Run("rsqrt", {c_.Add(variance, c_.Number(1e-5))});
    const HostTensor normalized = c_.Mul(centered, rstd);
    const Tensors forward = c_.All("layer_norm", {x, weight, bias}, {{"center", center}});
    c_.ExpectEqual(forward[0], c_.Add(c_.Mul(normalized, weight), bias), "y");
    c_.ExpectEqual(forward.back(), rstd, "rstd");

    Tensors operands = {g, x, forward.back()};
    if (center) operands.push_back(forward[1]);
    operands.push_back(weight);
    const Tensors gradients = c_.All("layer_norm_backward", operands, {{"center", center}});
    const HostTensor scaled = c_.Mul(g, weight);
    HostTensor inner = c_.Sub(scaled, c_.Mul(normalized, c_.Mean(c_.Mul(scaled, normalized), {1})));
    if (center) inner = c_.Sub(inner, c_.Mean(scaled, {1}));
    c_.ExpectEqual(gradients[0], c_.Mul(inner, rstd), "gx");
    c_.ExpectEqual(gradients[1], c_.Sum(c_.Mul(g, normalized), {0}), "gw");
    if (center) c_.ExpectEqual(gradients[2], c_.Sum(g, {0}), "gb");
  }
}

TEST_P(DefinitionsTest, OfBatchNorm) {
  const HostTensor x = c_.Values({6, 3, 50}, 1), g = c_.Values({6, 3, 50}, 2);
  const HostTensor running_mean = c_.Values({3}, 3), running_var = c_.Values({3}, 4, 0.5);
  const HostTensor weight = c_.Values({3}, 5), bias = c_.Values({3}, 6);
  const auto wide = [&](const HostTensor& values) { return c_.Reshape(values, {1, 3, 1}); };
  const HostTensor mean = c_.Mean(x, {0, 2}), centered = c_.Sub(x, mean);
  const HostTensor variance = c_.Mean(c_.Mul(centered, centered), {0, 2});
  const HostTensor invstd = c_.Run("rsqrt", {c_.Add(variance, c_.Number(1e-5))});
  const HostTensor normalized = c_.Mul(centered, invstd);
  const Tensors forward =
      c_.All("batch_norm", {x, running_mean, running_var, weight, bias}, {{"training", true}});
  c_.ExpectEqual(forward[0], c_.Add(c_.Mul(normalized, wide(weight)), wide(bias)), "y");
  c_.ExpectEqual(forward[1], mean, "mean");
  c_.ExpectEqual(forward[2], invstd, "invstd");
  const auto updated = [&](const HostTensor& old, const HostTensor& now) {
    return c_.Add(c_.Mul(wide(old), c_.Number(0.9)), c_.Mul(now, c_.Number(0.1)));
  };
  c_.ExpectEqual(forward[3], updated(running_mean, mean), "running_mean");
  c_.ExpectEqual(forward[4], updated(running_var, c_.Mul(variance, c_.Number(300.0 / 299))),
                 "running_var");
  const HostTensor by_running = c_.Mul(
      c_.Sub(x, wide(running_mean)), wide(c_.Run("rsqrt", {c_.Add(running_var, c_.Number(1e-5))})));
  c_.ExpectEqual(c_.Run("batch_norm", {x, running_mean, running_var, weight, bias}),
                 c_.Add(c_.Mul(by_running, wide(weight)), wide(bias)), "y, not in training");

  const Tensors gradients =
      c_.All("batch_norm_backward", {g, x, forward[1], forward[2], weight}, {{"training", true}});
  const HostTensor inner = c_.Sub(c_.Sub(g, c_.Mean(g, {0, 2})),
                                  c_.Mul(normalized, c_.Mean(c_.Mul(g, normalized), {0, 2})));
  c_.ExpectEqual(gradients[0], c_.Mul(inner, c_.Mul(wide(weight), invstd)), "gx");
  c_.ExpectEqual(gradients[1], c_.Sum(c_.Mul(g, normalized), {0, 2}), "gw");
  c_.ExpectEqual(gradients[2], c_.Sum(g, {0, 2}), "gb");
}

TEST_P(DefinitionsTest, OfCrossEntropy) {
  const HostTensor x = c_.Values({20, 9}, 1), weight = c_.Values({9}, 2, 0.5);
  const HostTensor g = c_.Values({20, 1}, 3);
  std::vector<double> classes(20);
  for (int i = 0; i < 20; ++i) classes[i] = i * 7 % 9;
  const HostTensor target = MakeTensor(DType::kInt64, {20}, classes);
  const HostTensor column = MakeTensor(DType::kInt64, {20, 1}, classes);
  const Attributes attrs = {{"label_smoothing", 0.25}};
  const HostTensor losses = c_.Run("neg", {c_.Run("log_softmax", {x})});
  const HostTensor of_target = c_.Run("gather", {losses, column}, {{"axis", int64_t{1}}});
  const HostTensor weight_of_target = c_.Run("index", {weight, column});
  const HostTensor smooth = c_.Sum(c_.Mul(losses, weight), {1});
  const Tensors forward = c_.All("cross_entropy", {x, target, weight}, attrs);
  c_.ExpectEqual(forward[0],
                 c_.Add(c_.Mul(c_.Mul(of_target, weight_of_target), c_.Number(0.75)),
                        c_.Mul(smooth, c_.Number(0.25 / 9))),
                 "loss");
  c_.ExpectEqual(forward[1], c_.Run("log", {c_.Sum(c_.Run("exp", {x}), {1})}), "lse");

  // The share of each class in the target, times its weight.
  const HostTensor zeros = c_.Sub(x, x);
  const HostTensor shares =
      c_.Add(c_.Run("scatter", {zeros, column, c_.Mul(weight_of_target, c_.Number(0.75))},
                    {{"axis", int64_t{1}}}),
             c_.Mul(weight, c_.Number(0.25 / 9)));
  const HostTensor p = c_.Run("softmax", {x});
  c_.ExpectEqual(
      c_.Run("cross_entropy_backward", {c_.Reshape(g, {20}), x, forward[1], target, weight}, attrs),
      c_.Mul(c_.Sub(c_.Mul(p, c_.Sum(shares, {1})), shares), g), "gx");
}

// Attention of q (2,4,L,E), k (2,2,S,E) and v (2,2,S,Ev).
struct AttentionCase {
  int64_t length, keys, depth, value_depth;
  bool causal = false;
  Shape mask = {};  // no dimensions: no mask
  bool mask_is_bool = false;
  double dropout_p = 0;
};

const AttentionCase kAttentionCases[] = {
    {5, 7, 8, 6},
    {1, 1300, 16, 16},
    {3, 600, 5, 33, true},
    {150, 140, 24, 40, true},
    {70, 200, 64, 64},
    {33, 90, 16, 20, false, {33, 90}},
    {140, 70, 8, 8, false, {140, 1}},
    {70, 9, 8, 8, false, {2, 4, 70, 9}},
    {65, 65, 7, 9, false, {2, 4, 65, 65}, true},
    {20, 130, 32, 16, false, {4, 1, 130}},
    {2, 40, 16, 16, false, {2, 1, 1, 40}, true},
    {40, 70, 16, 16, true, {}, false, 0.25},
    {2, 530, 16, 16, false, {530}, false, 0.5},
    {3, 6, 0, 4},
    {3, 0, 4, 4},
};

// Returns the rows of each head of q beside the keys of its head of k: (2,4,S,…).
HostTensor RepeatHeads(Composer& c, const HostTensor& x) {
  const Shape& shape = x.spec.shape;
  const Ints repeated = {2, 2, 2, shape.dim(2), shape.dim(3)};
  return c.Reshape(c.Run("broadcast_to", {c.Reshape(x, {2, 2, 1, shape.dim(2), shape.dim(3)})},
                         {{"shape", repeated}}),
                   {2, 4, shape.dim(2), shape.dim(3)});
}

// The operands of attention, and its definition as a composition.
class ComposedAttention {
 public:
  ComposedAttention(Composer& c, const AttentionCase& of, DType dtype) : c_(c) {
    q = c.Values({2, 4, of.length, of.depth}, 1);
    k = c.Values({2, 2, of.keys, of.depth}, 2);
    v = c.Values({2, 2, of.keys, of.value_depth}, 3);
    inputs = {q, k, v};
    attrs = {{"scale", 0.3}, {"causal", of.causal}};
    const Shape scores_shape = {2, 4, of.length, of.keys};
    HostTensor scores =
        c.Mul(c.Run("matmul", {q, RepeatHeads(c, k)}, {{"transpose_b", true}}), c.Number(0.3));
    const HostTensor excluded = c.Number(-INFINITY);
    if (of.mask.rank() > 0 && of.mask_is_bool) {
      inputs.push_back(Spread(DType::kBool, of.mask, 0, 1, 4));
      scores = c.Run("where", {inputs.back(), scores, excluded});
    } else if (of.mask.rank() > 0) {
      inputs.push_back(c.Values(of.mask, 4));
      scores = c.Add(scores, inputs.back());
    }
    if (of.causal) {
      std::vector<double> allowed;
      for (int64_t i = 0; i < of.length; ++i) {
        for (int64_t j = 0; j < of.keys; ++j) allowed.push_back(j <= i ? 1 : 0);
      }
      scores = c.Run("where",
                     {MakeTensor(DType::kBool, {of.length, of.keys}, allowed), scores, excluded});
    }
    // A row without keys has no softmax.
    const HostTensor max = of.keys == 0
                               ? HostTensor{}
                               : c.Run("max", {scores}, {{"axes", Ints{3}}, {"keepdims", true}});
    HostTensor weights = scores;
    if (of.keys > 0) {
      const HostTensor any = c.Run("gt", {max, excluded});
      const HostTensor offset = c.Run("where", {any, max, c.Number(0)});
      const HostTensor exp = c.Run("exp", {c.Sub(scores, offset)});
      const HostTensor sum = c.Sum(exp, {3});
      weights = c.Run("where", {any, c.Div(exp, sum), c.Number(0)});
      lse = c.Add(offset, c.Run("log", {sum}));
    } else {
      lse = MakeTensor(dtype, {2, 4, of.length, 1}, std::vector<double>(8 * of.length, -INFINITY));
    }
    softmax = weights;
    if (of.dropout_p > 0) {
      attrs.Set("dropout_p", of.dropout_p);
      attrs.Set("seed", int64_t{9});
      attrs.Set("stream", int64_t{3});
      weights = Drop(weights, of.dropout_p);
    }
    o = c.Run("matmul", {weights, RepeatHeads(c, v)});
  }

  HostTensor Drop(const HostTensor& x, double p) {
    return c_.Run("dropout", {x}, {{"p", p}, {"seed", int64_t{9}}, {"stream", int64_t{3}}});
  }

  Tensors inputs;
  Attributes attrs;
  HostTensor q, k, v, softmax, o, lse;

 private:
  Composer& c_;
};

TEST_P(DefinitionsTest, OfAttention) {
  for (const AttentionCase& of : kAttentionCases) {
    ComposedAttention composed(c_, of, GetParam());
    const Tensors forward = c_.All("sdpa", composed.inputs, composed.attrs);
    const std::string what = Shape({of.length, of.keys, of.depth, of.value_depth}).ToString();
    c_.ExpectEqual(forward[0], composed.o, "o of " + what);
    c_.ExpectEqual(forward[1], composed.lse, "lse of " + what);
  }
}

TEST_P(DefinitionsTest, OfAttentionBackward) {
  for (const AttentionCase& of : kAttentionCases) {
    ComposedAttention composed(c_, of, GetParam());
    const std::string what = Shape({of.length, of.keys, of.depth, of.value_depth}).ToString();
    const HostTensor g = c_.Values(composed.o.spec.shape, 5);
    Attributes attrs = composed.attrs;
    const bool has_gmask = of.mask.rank() > 0 && !of.mask_is_bool;
    if (has_gmask) attrs.Set("mask_gradient", true);
    const Tensors forward = c_.All("sdpa", composed.inputs, composed.attrs);
    Tensors inputs = {g, composed.q, composed.k, composed.v, forward[0], forward[1]};
    if (composed.inputs.size() > 3) inputs.push_back(composed.inputs[3]);
    const Tensors got = c_.All("sdpa_backward", inputs, attrs);

    const HostTensor k = RepeatHeads(c_, composed.k), v = RepeatHeads(c_, composed.v);
    HostTensor of_weights = c_.Run("matmul", {g, v}, {{"transpose_b", true}});
    HostTensor weights = composed.softmax;
    if (of.dropout_p > 0) {
      of_weights = composed.Drop(of_weights, of.dropout_p);
      weights = composed.Drop(weights, of.dropout_p);
    }
    const HostTensor of_scores = c_.Run("softmax_backward", {of_weights, composed.softmax});
    const HostTensor scaled = c_.Mul(of_scores, c_.Number(0.3));
    const auto sum_heads = [&](const HostTensor& x) {
      const Shape& shape = x.spec.shape;
      return c_.Sum(c_.Reshape(x, {2, 2, 2, shape.dim(2), shape.dim(3)}), {2});
    };
    c_.ExpectEqual(got[0], c_.Run("matmul", {scaled, k}), "gq of " + what);
    c_.ExpectEqual(got[1],
                   sum_heads(c_.Run("matmul", {scaled, composed.q}, {{"transpose_a", true}})),
                   "gk of " + what);
    c_.ExpectEqual(got[2], sum_heads(c_.Run("matmul", {weights, g}, {{"transpose_a", true}})),
                   "gv of " + what);
    if (!has_gmask) continue;
    Ints summed;
    for (int d = 0; d < 4; ++d) {
      const int axis = d - (4 - of.mask.rank());
      if (axis < 0 || of.mask.dim(axis) == 1) summed.push_back(d);
    }
    c_.ExpectEqual(got[3], summed.empty() ? of_scores : c_.Sum(of_scores, summed),
                   "gmask of " + what);
  }
}

// Returns the windows of 3x3 elements, two apart, of a plane of 9x11 elements, as rows.
HostTensor WindowRows(Composer& c, const HostTensor& x) {
  const HostTensor view = c.Run("as_strided", {x},
                                {{"shape", Ints{2, 4, 5, 3, 3}},
                                 {"strides", Ints{99, 22, 2, 11, 1}},
                                 {"offset", int64_t{0}}});
  return c.Reshape(view, {2, 4, 5, 9});
}

TEST_P(DefinitionsTest, OfPooling) {
  const HostTensor x = c_.Values({2, 9, 11}, 1);
  const Attributes windows = {{"kernel", Ints{3, 3}}, {"stride", Ints{2, 2}}};
  const HostTensor rows = WindowRows(c_, x);
  const Tensors pooled = c_.All("max_pool", {x}, windows);
  c_.ExpectEqual(pooled[0], c_.Run("max", {rows}, {{"axes", Ints{3}}}), "max");
  c_.ExpectEqual(c_.Run("avg_pool", {x}, windows), c_.Mean(rows, {3}), "mean");
  const HostTensor planes = c_.Reshape(x, {2, 99}), indices = c_.Reshape(pooled[1], {2, 20});
  c_.ExpectEqual(pooled[0], c_.Run("gather", {planes, indices}, {{"axis", int64_t{1}}}), "indices");

  Attributes backward = windows;
  backward.Set("size", Ints{9, 11});
  const HostTensor g = c_.Values({2, 4, 5}, 2);
  c_.ExpectEqual(c_.Run("max_pool_backward", {g, pooled[1]}, backward),
                 c_.Run("scatter", {c_.Sub(planes, planes), indices, c_.Reshape(g, {2, 20})},
                        {{"axis", int64_t{1}}, {"reduce", std::string("add")}}),
                 "gradient of max");
}

// A convolution over two spatial axes, with different numbers for each axis.
struct ConvSizes {
  Ints x, weight, stride, padding, dilation;  // the padding: low, high, low, high
  int64_t groups;

  Attributes attrs() const {
    return {{"stride", stride}, {"padding", padding}, {"dilation", dilation}, {"groups", groups}};
  }
  int64_t in(int axis) const { return x[2 + axis] + padding[2 * axis] + padding[2 * axis + 1]; }
  int64_t out(int axis) const {
    return (in(axis)-dilation[axis] * (weight[2 + axis] - 1) - 1) / stride[axis] + 1;
  }
  int64_t taps() const { return weight[1] * weight[2] * weight[3]; }
  int64_t positions() const { return out(0) * out(1); }
};

// Returns the windows of each image and group as a matrix (channels and taps, positions).
HostTensor WindowColumns(Composer& c, const HostTensor& x, const ConvSizes& s) {
  const int64_t n = s.x[0], channels = s.x[1], rows = s.in(0), columns = s.in(1);
  const HostTensor zeros = c.Run("mul", {c.Values({n, channels, rows, columns}, 1), c.Number(0)});
  const Ints outer = {channels * rows * columns, rows * columns, columns, 1};
  const HostTensor padded = c.Run(
      "as_strided_scatter", {zeros, x},
      {{"shape", s.x}, {"strides", outer}, {"offset", s.padding[0] * columns + s.padding[2]}});
  const HostTensor windows =
      c.Run("as_strided", {padded},
            {{"shape", Ints{n, channels, s.weight[2], s.weight[3], s.out(0), s.out(1)}},
             {"strides", Ints{outer[0], outer[1], s.dilation[0] * columns, s.dilation[1],
                              s.stride[0] * columns, s.stride[1]}},
             {"offset", int64_t{0}}});
  return c.Reshape(windows, {n, s.groups, s.taps(), s.positions()});
}

TEST_P(DefinitionsTest, OfConvolution) {
  const ConvSizes cases[] = {
      {{2, 3, 9, 8}, {4, 3, 3, 2}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 1},
      {{2, 4, 9, 8}, {6, 2, 3, 2}, {2, 3}, {1, 2, 0, 3}, {2, 1}, 2},
      {{1, 20, 7, 7}, {20, 1, 3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 20},
      {{2, 17, 5, 6}, {33, 17, 1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 1},
      {{3, 2, 14, 15}, {7, 2, 7, 7}, {2, 2}, {3, 3, 3, 3}, {1, 1}, 1},
  };
  for (const ConvSizes& s : cases) {
    const HostTensor x = c_.Values(Shape(absl::MakeConstSpan(s.x)), 1);
    const HostTensor weight = c_.Values(Shape(absl::MakeConstSpan(s.weight)), 2);
    const int64_t n = s.x[0], out = s.weight[0];
    const HostTensor bias = c_.Values({out}, 3), g = c_.Values({n, out, s.out(0), s.out(1)}, 4);
    const Ints grouped = {n, s.groups, out / s.groups, s.positions()};
    const HostTensor windows = WindowColumns(c_, x, s);
    const HostTensor matrices = c_.Reshape(weight, {1, s.groups, out / s.groups, s.taps()});
    const HostTensor product = c_.Reshape(c_.Run("matmul", {matrices, windows}), {n, out, -1});
    Attributes attrs = s.attrs();
    c_.ExpectEqual(c_.Run("conv", {x, weight}, attrs), product, "y");
    attrs.Set("activation", "silu");
    const HostTensor biased = c_.Add(product, c_.Reshape(bias, {out, 1}));
    c_.ExpectEqual(c_.Run("conv", {x, weight, bias}, attrs), c_.Run("silu", {biased}), "silu");

    const HostTensor of_y = c_.Reshape(g, grouped);
    attrs = s.attrs();
    attrs.Set("shape", s.weight);
    c_.ExpectEqual(c_.Run("conv_backward_weight", {g, x}, attrs),
                   c_.Sum(c_.Run("matmul", {of_y, windows}, {{"transpose_b", true}}), {0}), "gw");
    const HostTensor of_windows = c_.Run("matmul", {matrices, of_y}, {{"transpose_a", true}});
    // Each window's element is added to that of x with its number. Padding has the number 0.
    const HostTensor numbers =
        c_.Reshape(c_.Run("arange", {},
                          {{"start", 1.0}, {"stop", x.spec.num_elements() + 1.0}, {"step", 1.0}}),
                   s.x);
    const HostTensor indices =
        c_.Run("cast", {WindowColumns(c_, c_.Run("cast", {numbers}, {{"dtype", GetParam()}}), s)},
               {{"dtype", DType::kInt64}});
    const HostTensor sums = c_.Run("index_put",
                                   {c_.Sub(c_.Values({x.spec.num_elements() + 1}, 1),
                                           c_.Values({x.spec.num_elements() + 1}, 1)),
                                    indices, of_windows},
                                   {{"reduce", std::string("add")}});
    attrs.Set("shape", s.x);
    c_.ExpectEqual(c_.Run("conv_backward_input", {g, weight}, attrs),
                   c_.Run("slice", {sums}, {{"starts", Ints{1}}, {"stops", Ints{INT64_MAX}}}),
                   "gx");
  }
}

TEST_P(DefinitionsTest, OfAdamStep) {
  const HostTensor p = c_.Values({5, 7}, 1), g = c_.Values({5, 7}, 2), m = c_.Values({5, 7}, 3);
  const HostTensor v = c_.Values({5, 7}, 4, 0.1), vmax = c_.Values({5, 7}, 5, 0.1);
  const double lr = 0.01, decay = 0.1, step = 3;
  const Tensors got = c_.All("adam_step", {p, g, m, v, vmax, c_.Number(step), c_.Number(lr)},
                             {{"weight_decay", decay}, {"decoupled", true}, {"amsgrad", true}});
  const HostTensor new_m = c_.Add(c_.Mul(m, c_.Number(0.9)), c_.Mul(g, c_.Number(0.1)));
  const HostTensor new_v =
      c_.Add(c_.Mul(v, c_.Number(0.999)), c_.Mul(c_.Mul(g, g), c_.Number(0.001)));
  const HostTensor largest = c_.Run("maximum", {vmax, new_v});
  const HostTensor root =
      c_.Mul(c_.Run("sqrt", {largest}), c_.Number(1 / std::sqrt(1 - std::pow(0.999, step))));
  const HostTensor change = c_.Mul(c_.Div(new_m, c_.Add(root, c_.Number(1e-8))),
                                   c_.Number(lr / (1 - std::pow(0.9, step))));
  c_.ExpectEqual(got[0], c_.Sub(c_.Mul(p, c_.Number(1 - lr * decay)), change), "p");
  c_.ExpectEqual(got[1], new_m, "m");
  c_.ExpectEqual(got[2], new_v, "v");
  c_.ExpectEqual(got[3], largest, "vmax");
}

INSTANTIATE_TEST_SUITE_P(DTypes, DefinitionsTest, testing::Values(DType::kFloat32, DType::kFloat64),
                         [](const auto& dtype) { return std::string(DTypeName(dtype.param)); });

}  // namespace
}  // namespace tensord::server
