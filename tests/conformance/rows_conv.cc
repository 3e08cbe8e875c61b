// Convolution and its gradients.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tensord/common/ops/elementwise.h"
#include "tensord/tests/conformance/reference.h"
#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

using Numbers = std::vector<int64_t>;

struct ConvCase {
  Shape x, w;
  Numbers stride = {};
  Numbers padding = {};
  Numbers dilation = {};
  int64_t groups = 1;
};

const ConvCase kConvCases[] = {
    // one axis
    {{1, 1, 1}, {1, 1, 1}},
    {{2, 3, 9}, {4, 3, 3}},
    {{2, 3, 9}, {4, 3, 3}, {2}, {1}},
    {{1, 2, 40}, {5, 2, 5}, {3}, {0, 7}, {2}},
    {{2, 4, 11}, {4, 1, 3}, {1}, {2}, {1}, 4},
    {{3, 70, 33}, {17, 70, 4}},
    {{0, 3, 9}, {4, 3, 3}},
    // two axes
    {{1, 1, 5, 5}, {1, 1, 5, 5}},
    {{2, 3, 8, 9}, {4, 3, 1, 1}},
    {{2, 3, 8, 9}, {4, 3, 1, 1}, {2}},
    {{2, 3, 8, 9}, {5, 3, 3, 2}, {2, 1}, {1, 0}},
    {{1, 16, 14, 14}, {16, 16, 3, 3}, {1}, {1}},
    {{2, 20, 7, 6}, {33, 20, 3, 3}, {1}, {1}},
    {{1, 3, 23, 25}, {16, 3, 7, 7}, {2}, {3}},
    {{4, 6, 14, 14}, {16, 6, 5, 5}},
    {{1, 4, 9, 9}, {6, 2, 3, 3}, {1}, {1}, {1}, 2},
    {{2, 32, 9, 9}, {32, 16, 3, 3}, {2}, {1}, {1}, 2},
    {{2, 16, 9, 9}, {16, 1, 3, 3}, {1}, {1}, {1}, 16},
    {{2, 5, 9, 8}, {10, 1, 3, 3}, {2}, {1}, {1}, 5},
    {{1, 3, 12, 13}, {4, 3, 3, 3}, {1}, {2}, {2, 3}},
    {{1, 3, 12, 13}, {4, 3, 3, 3}, {2, 3}, {1, 2, 0, 3}, {2, 1}},
    {{1, 2, 3, 3}, {3, 2, 2, 2}, {1}, {4, 0, 0, 5}},
    {{1, 2, 9, 9}, {3, 2, 2, 2}, {5, 4}},
    {{0, 2, 9, 9}, {3, 2, 2, 2}},
    // three axes
    {{1, 2, 4, 5, 6}, {3, 2, 2, 3, 2}},
    {{2, 4, 5, 4, 6}, {6, 2, 3, 1, 2}, {1, 2, 2}, {1, 0, 1}, {1}, 2},
    {{1, 17, 3, 5, 5}, {16, 17, 3, 3, 3}, {1}, {1}},
    {{1, 2, 5, 6, 7}, {2, 2, 2, 2, 2}, {2, 1, 1}, {0, 1, 1, 0, 2, 2}, {2, 3, 1}},
};

Attributes Attrs(const ConvCase& c) {
  Attributes attrs;
  if (!c.stride.empty()) attrs.Set("stride", c.stride);
  if (!c.padding.empty()) attrs.Set("padding", c.padding);
  if (!c.dilation.empty()) attrs.Set("dilation", c.dilation);
  if (c.groups != 1) attrs.Set("groups", c.groups);
  return attrs;
}

Attributes WithShape(const ConvCase& c, const Shape& shape) {
  Attributes attrs = Attrs(c);
  attrs.Set("shape", Numbers(shape.dims().begin(), shape.dims().end()));
  return attrs;
}

// As of a matrix product: sums of this number of products.
Bound ConvBound(int64_t products) {
  return {.ulps = 1, .epsilons = 2 + 2 * std::sqrt(static_cast<double>(products))};
}

Shape ConvShape(DType dtype, const ConvCase& c) {
  return Prepare(Row{"conv", {{{dtype, c.x}}, {{dtype, c.w}}}, Attrs(c)}).expected[0].spec.shape;
}

void AddConv(Rows& rows, DType dtype, const ConvCase& c) {
  const Shape y = ConvShape(dtype, c);
  const int64_t window = c.w.num_elements() / c.w.dim(0);
  const int64_t channel = y.num_elements() / y.dim(1);
  const Input x{{dtype, c.x}}, w{{dtype, c.w}}, g{{dtype, y}}, b{{dtype, {c.w.dim(0)}}};
  rows.push_back({"conv", {x, w}, Attrs(c), ConvBound(window)});
  rows.push_back({"conv", {x, w, b}, Attrs(c), ConvBound(window + 1)});
  rows.push_back({"conv_backward_input",
                  {g, w},
                  WithShape(c, c.x),
                  ConvBound(c.w.num_elements() / c.groups / c.w.dim(1))});
  rows.push_back({"conv_backward_weight", {g, x}, WithShape(c, c.w), ConvBound(channel)});
}

void AddActivations(Rows& rows, DType dtype) {
  for (const UnaryFunction function : Activations()) {
    Row row{"conv",
            {{{dtype, {2, 5, 7, 7}}, Fill::kUnit},
             {{dtype, {18, 5, 3, 3}}, Fill::kUnit},
             {{dtype, {18}}}},
            {{"activation", std::string(FunctionName(function))}, {"padding", Numbers{1}}},
            ConvBound(46)};
    row.bound.ulps = dtype == DType::kFloat32 || dtype == DType::kFloat64 ? 6 : 1;
    row.bound.epsilons += 4;
    rows.push_back(std::move(row));
  }
}

// Padding isn't multiplied, or it is 0 times a finite weight.
void AddSpecialConvs(Rows& rows, DType dtype) {
  const double nan = std::nan(""), inf = INFINITY;
  std::vector<double> x(2 * 6 * 6, 1);
  x[0] = nan;
  x[20] = inf;
  x[28] = -inf;
  x[36 + 35] = inf;
  const Input special{{dtype, {1, 2, 6, 6}}, Fill::kValues, x};
  const Input w{{dtype, {3, 2, 3, 3}}, Fill::kPositive};
  rows.push_back({"conv", {special, w}, {{"padding", Numbers{1}}}, ConvBound(18)});
  rows.push_back({"conv", {special, w}, {{"stride", Numbers{2}}}, ConvBound(18)});
  const Input g{{dtype, {1, 3, 4, 4}}, Fill::kPositive};
  rows.push_back(
      {"conv_backward_weight", {g, special}, {{"shape", Numbers{3, 2, 3, 3}}}, ConvBound(16)});
  std::vector<double> weights(3 * 2 * 3 * 3, 1);
  weights[4] = nan;
  weights[22] = inf;
  rows.push_back(
      {"conv",
       {{{dtype, {1, 2, 6, 6}}, Fill::kPositive}, {{dtype, {3, 2, 3, 3}}, Fill::kValues, weights}},
       {},
       ConvBound(18)});
}

// The sums are exact in float32, but not in the dtype: 16-bit results are rounded once.
void AddExactSums(Rows& rows) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const Input x{{dtype, {2, 40, 9, 9}}, Fill::kTies}, w{{dtype, {5, 40, 3, 3}}, Fill::kTies};
    const Input g{{dtype, {2, 5, 7, 7}}, Fill::kTies};
    const Bound bound{.ulps = 1};
    rows.push_back({"conv", {x, w}, {}, bound});
    rows.push_back({"conv_backward_input", {g, w}, {{"shape", Numbers{2, 40, 9, 9}}}, bound});
    rows.push_back({"conv_backward_weight", {g, x}, {{"shape", Numbers{5, 40, 3, 3}}}, bound});
  }
}

void AddMixedDTypes(Rows& rows) {
  for (const DType x : kFloatingDTypes) {
    for (const DType w : kFloatingDTypes) {
      if (x == w) continue;
      const bool wide = x == DType::kFloat64 || w == DType::kFloat64;
      Bound bound = ConvBound(18);
      if (!wide) bound.ulps = 1;
      rows.push_back({"conv", {{{x, {1, 2, 5, 5}}}, {{w, {3, 2, 3, 3}}}}, {}, bound});
    }
  }
}

void AddConvRefusals(Rows& rows) {
  constexpr DType kF32 = DType::kFloat32;
  const TensorSpec x{kF32, {1, 4, 5, 6}}, w{kF32, {6, 4, 3, 3}}, g{kF32, {1, 6, 3, 4}};
  RefuseSpecs(rows, "conv", {{kF32, {4}}, {kF32, {6}}});
  RefuseSpecs(rows, "conv", {{kF32, {1, 4}}, {kF32, {6, 4}}});
  RefuseSpecs(rows, "conv", {{kF32, {4, 5, 6}}, w});
  RefuseSpecs(rows, "conv", {x, {kF32, {6, 4, 3}}});
  RefuseSpecs(rows, "conv", {{kF32, {1, 1, 2, 2, 2, 2}}, {kF32, {1, 1, 2, 2, 2, 2}}});
  RefuseSpecs(rows, "conv", {x, {kF32, {6, 3, 3, 3}}});
  RefuseSpecs(rows, "conv", {x, w, {kF32, {5}}});
  RefuseSpecs(rows, "conv", {x, w, {kF32, {6, 1}}});
  RefuseSpecs(rows, "conv", {x, {kF32, {6, 4, 6, 3}}});
  RefuseSpecs(rows, "conv", {x, {kF32, {6, 4, 0, 3}}});
  RefuseSpecs(rows, "conv", {x, {kF32, {0, 4, 3, 3}}});
  RefuseSpecs(rows, "conv", {{kF32, {1, 0, 5, 6}}, {kF32, {6, 0, 3, 3}}});
  RefuseSpecs(rows, "conv", {{DType::kInt32, {1, 4, 5, 6}}, {DType::kInt32, {6, 4, 3, 3}}});
  RefuseSpecs(rows, "conv", {x, w}, {{"groups", int64_t{0}}});
  RefuseSpecs(rows, "conv", {x, w}, {{"groups", int64_t{2}}});
  RefuseSpecs(rows, "conv", {x, {kF32, {6, 1, 3, 3}}}, {{"groups", int64_t{4}}});
  RefuseSpecs(rows, "conv", {x, w}, {{"stride", Numbers{0}}});
  RefuseSpecs(rows, "conv", {x, w}, {{"stride", Numbers{1, 1, 1}}});
  RefuseSpecs(rows, "conv", {x, w}, {{"padding", Numbers{-1}}});
  RefuseSpecs(rows, "conv", {x, w}, {{"padding", Numbers{1, 1, 1}}});
  RefuseSpecs(rows, "conv", {x, w}, {{"padding", Numbers{int64_t{1} << 40}}});
  RefuseSpecs(rows, "conv", {x, w}, {{"dilation", Numbers{3}}});
  RefuseSpecs(rows, "conv", {x, w}, {{"activation", std::string("sine")}});
  const Attributes of_x{{"shape", Numbers{1, 4, 5, 6}}}, of_w{{"shape", Numbers{6, 4, 3, 3}}};
  RefuseSpecs(rows, "conv_backward_input", {g, w});
  RefuseSpecs(rows, "conv_backward_input", {g, w}, {{"shape", Numbers{1, 4, 5, 7}}});
  RefuseSpecs(rows, "conv_backward_input", {g, w}, {{"shape", Numbers{1, 4, 5}}});
  RefuseSpecs(rows, "conv_backward_input", {g, w}, {{"shape", Numbers{1, 4, 5, -6}}});
  RefuseSpecs(rows, "conv_backward_input", {g, w}, of_w);
  RefuseSpecs(rows, "conv_backward_weight", {g, x});
  RefuseSpecs(rows, "conv_backward_weight", {g, x}, {{"shape", Numbers{6, 4, 3, 2}}});
  RefuseSpecs(rows, "conv_backward_weight", {g, x}, of_x);
}

}  // namespace

void AddConvRows(Rows& rows) {
  for (const DType dtype : kFloatingDTypes) {
    for (const ConvCase& c : kConvCases) AddConv(rows, dtype, c);
    AddActivations(rows, dtype);
    AddSpecialConvs(rows, dtype);
  }
  AddExactSums(rows);
  AddMixedDTypes(rows);
  AddConvRefusals(rows);
}

}  // namespace tensord::conformance
