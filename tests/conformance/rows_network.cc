// The gradient of softmax, and normalization.
#include <cmath>
#include <utility>
#include <vector>

#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

// Returns the bound of a result that sums of n terms contribute to. 16-bit results are rounded
// once.
Bound NetworkBound(DType dtype, int64_t n) {
  const bool narrow = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  return {.ulps = narrow ? 1.0 : 2.0, .epsilons = 4 + std::sqrt(static_cast<double>(n))};
}

Row SoftmaxBackwardRow(Input g, Input y, int64_t axis, bool log) {
  const Shape& shape = g.spec.shape;
  const int64_t n = shape.rank() == 0 ? 1 : shape.dim(axis < 0 ? axis + shape.rank() : axis);
  const Bound bound = NetworkBound(g.spec.dtype, n);
  return {.op = "softmax_backward",
          .inputs = {std::move(g), std::move(y)},
          .attrs = {{"axis", axis}, {"log", log}},
          .bound = bound};
}

void AddSoftmaxBackward(Rows& rows) {
  struct Case {
    Shape shape;
    int64_t axis;
  };
  const Case cases[] = {{{}, 0},        {{1}, 0},          {{7}, -1},       {{16}, 0},
                        {{0}, 0},       {{0, 3}, 1},       {{3, 0}, 1},     {{3, 0}, 0},
                        {{3, 5}, 0},    {{3, 5}, 1},       {{33, 65}, 0},   {{33, 65}, 1},
                        {{4, 3, 5}, 1}, {{4, 3, 5}, -3},   {{3, 2500}, 1},  {{2500, 3}, 0},
                        {{40, 130}, 0}, {{2, 70, 300}, 1}, {{1, 70000}, 1}, {{130, 17}, 1},
                        {{6, 1, 4}, 1}, {{2, 3, 4, 5}, 2}, {{5, 64}, 1},    {{5, 1024}, 1}};
  for (const DType dtype : kFloatingDTypes) {
    for (const Case& c : cases) {
      const Input g{{dtype, c.shape}};
      rows.push_back(SoftmaxBackwardRow(g, {{dtype, c.shape}, Fill::kUnit}, c.axis, false));
      rows.push_back(SoftmaxBackwardRow(g, {{dtype, c.shape}}, c.axis, true));
    }
    const double nan = std::nan(""), inf = INFINITY;
    for (const bool log : {false, true}) {
      rows.push_back(SoftmaxBackwardRow(
          {{dtype, {4, 3}}, Fill::kValues, {nan, 1, 2, inf, 1, 2, 1, 2, -0.0, -inf, inf, 0}},
          {{dtype, {4, 3}}, Fill::kValues, {0.5, 0.25, 0.25, 0, 1, 0.5, nan, 0.5, 0.5, 1, 1, 1}}, 1,
          log));
      rows.push_back(SoftmaxBackwardRow(
          {{dtype, {3, 2}}, Fill::kValues, {1, 2, 3, 4, 5, 6}},
          {{dtype, {3, 2}}, Fill::kValues, {0, -inf, -inf, 0, -inf, -inf}}, 0, log));
    }
  }
  // The dtypes are promoted.
  rows.push_back(
      SoftmaxBackwardRow({{DType::kFloat32, {3, 4}}}, {{DType::kFloat16, {3, 4}}}, 1, false));
  const Input x{{DType::kFloat32, {3, 4}}};
  Refuse(rows, {"softmax_backward", {x}});
  Refuse(rows, {"softmax_backward", {x, {{DType::kFloat32, {4, 3}}}}});
  Refuse(rows, {"softmax_backward", {x, {{DType::kFloat32, {4}}}}});
  Refuse(rows, {"softmax_backward", {x, x}, {{"axis", int64_t{2}}}});
  Refuse(rows, {"softmax_backward", {x, {{DType::kInt32, {3, 4}}}}});
  Refuse(rows, {"softmax_backward", {{{DType::kInt32, {3, 4}}}, {{DType::kInt32, {3, 4}}}}});
}

struct NormCase {
  Shape shape;
  int64_t normalized_rank = 1;
};

const NormCase kNormCases[] = {
    {{1}},        {{7}},           {{4, 3}},          {{5, 16}},   {{3, 17}},   {{70, 64}},
    {{2, 3, 65}}, {{2, 3, 65}, 2}, {{2, 3, 4}, 3},    {{3, 2500}}, {{33, 129}}, {{100, 1}},
    {{0, 5}},     {{2, 0, 5}},     {{2, 3, 5, 7}, 2}, {{300, 5}},  {{130, 768}}};

int64_t NormalizedElements(const NormCase& c) {
  int64_t n = 1;
  for (int64_t d = c.shape.rank() - c.normalized_rank; d < c.shape.rank(); ++d) {
    n *= c.shape.dim(static_cast<int>(d));
  }
  return n;
}

Shape ParameterShape(const NormCase& c) {
  return Shape(c.shape.dims().subspan(c.shape.rank() - c.normalized_rank));
}

Shape StatisticsShape(const NormCase& c) {
  Shape shape = c.shape;
  for (int64_t d = 1; d <= c.normalized_rank; ++d) {
    shape.set_dim(static_cast<int>(shape.rank() - d), 1);
  }
  return shape;
}

// Adds a row for layer_norm with the first `inputs` of x, weight and bias.
void AddLayerNorm(Rows& rows, const Input& x, const NormCase& c, DType parameters, int inputs,
                  bool center) {
  Row row{"layer_norm", {x}};
  for (int i = 1; i < inputs; ++i) row.inputs.push_back({{parameters, ParameterShape(c)}});
  row.attrs.Set("center", center);
  if (c.normalized_rank != 1) row.attrs.Set("normalized_rank", c.normalized_rank);
  row.num_outputs = center ? 3 : 2;
  const DType dtype = x.spec.dtype;
  const int64_t n = NormalizedElements(c);
  row.bound = NetworkBound(StatisticsOf(dtype), n);
  row.bounds = {NetworkBound(dtype, n)};
  rows.push_back(std::move(row));
}

void AddLayerNormRows(Rows& rows) {
  for (const DType dtype : kFloatingDTypes) {
    for (const NormCase& c : kNormCases) {
      for (const bool center : {true, false}) {
        for (int inputs = 1; inputs <= 3; ++inputs) {
          AddLayerNorm(rows, {{dtype, c.shape}}, c, dtype, inputs, center);
        }
        AddLayerNorm(rows, {{dtype, c.shape}, Fill::kWide}, c, StatisticsOf(dtype), 3, center);
      }
    }
    const double nan = std::nan(""), inf = INFINITY;
    const NormCase special{{5, 4}};
    for (const bool center : {true, false}) {
      AddLayerNorm(rows,
                   {{dtype, {5, 4}}, Fill::kValues, {nan, 1, 2,   3,   inf, 1,   2,    3, 1, -inf,
                                                     inf, 2, 2.5, 2.5, 2.5, 2.5, -0.0, 0, 0, 0}},
                   special, dtype, 2, center);
    }
    // The mean is large compared with the deviations.
    std::vector<double> values;
    for (int i = 0; i < 600; ++i) values.push_back(1000 + i * 37 % 101);
    AddLayerNorm(rows, {{dtype, {3, 200}}, Fill::kValues, values}, {{3, 200}}, dtype, 1, true);
    for (const double eps : {0.0, 1.0, -0.001}) {
      AddLayerNorm(rows, {{dtype, {3, 5}}}, {{3, 5}}, dtype, 1, true);
      rows.back().attrs.Set("eps", eps);
    }
  }
  // Rows without elements: the statistics are NaN.
  AddLayerNorm(rows, {{DType::kFloat32, {3, 0}}}, {{3, 0}}, DType::kFloat32, 2, true);
  AddLayerNorm(rows, {{DType::kFloat16, {3, 0}}}, {{3, 0}}, DType::kFloat16, 2, false);
  const Input x{{DType::kFloat32, {3, 4}}}, weight{{DType::kFloat32, {4}}};
  Refuse(rows, {"layer_norm", {{{DType::kFloat32, {}}}}});
  Refuse(rows, {"layer_norm", {{{DType::kInt32, {3}}}}});
  Refuse(rows, {"layer_norm", {x}, {{"normalized_rank", int64_t{0}}}});
  Refuse(rows, {"layer_norm", {x}, {{"normalized_rank", int64_t{3}}}});
  Refuse(rows, {"layer_norm", {x}, {{"eps", std::nan("")}}});
  Refuse(rows, {"layer_norm", {x, {{DType::kFloat32, {3}}}}});
  Refuse(rows, {"layer_norm", {x, {{DType::kFloat32, {1, 4}}}}});
  Refuse(rows, {"layer_norm", {x, {{DType::kFloat64, {4}}}}});
  Refuse(rows, {"layer_norm", {x, {{DType::kFloat16, {4}}}}});
  Refuse(rows, {"layer_norm", {x, weight, {{DType::kInt32, {4}}}}});
}

// Adds a row for layer_norm_backward with these gradients. If the list is empty: with all.
void AddLayerNormBackward(Rows& rows, const NormCase& c, DType dtype, DType parameters,
                          bool has_weight, bool center, std::vector<int64_t> gradients) {
  const DType statistics = StatisticsOf(dtype);
  Row row{"layer_norm_backward", {{{dtype, c.shape}}, {{dtype, c.shape}}}};
  row.inputs.push_back({{statistics, StatisticsShape(c)}, Fill::kPositive});
  if (center) row.inputs.push_back({{statistics, StatisticsShape(c)}, Fill::kUnit});
  if (has_weight) row.inputs.push_back({{parameters, ParameterShape(c)}});
  row.attrs.Set("center", center);
  if (c.normalized_rank != 1) row.attrs.Set("normalized_rank", c.normalized_rank);
  const int64_t n = NormalizedElements(c);
  const int64_t lines = n == 0 ? 0 : c.shape.num_elements() / n;
  for (const int64_t operand : gradients.empty() && center ? std::vector<int64_t>{0, 1, 2}
                               : gradients.empty()         ? std::vector<int64_t>{0, 1}
                                                           : gradients) {
    row.bounds.push_back(operand == 0 ? NetworkBound(dtype, n)
                                      : NetworkBound(has_weight ? parameters : dtype, lines));
  }
  row.num_outputs = static_cast<int>(row.bounds.size());
  if (!gradients.empty()) row.attrs.Set("gradients", std::move(gradients));
  rows.push_back(std::move(row));
}

void AddLayerNormBackwardRows(Rows& rows) {
  for (const DType dtype : kFloatingDTypes) {
    for (const NormCase& c : kNormCases) {
      for (const bool center : {true, false}) {
        AddLayerNormBackward(rows, c, dtype, dtype, true, center, {});
        AddLayerNormBackward(rows, c, dtype, StatisticsOf(dtype), true, center, {0, 1, 2});
        AddLayerNormBackward(rows, c, dtype, dtype, false, center, {0});
        AddLayerNormBackward(rows, c, dtype, dtype, false, center, {2});
        AddLayerNormBackward(rows, c, dtype, dtype, true, center, {1});
      }
    }
    AddLayerNormBackward(rows, {{3, 0}}, dtype, dtype, true, true, {});
  }
  const Input x{{DType::kFloat32, {3, 4}}}, statistic{{DType::kFloat32, {3, 1}}};
  const Input weight{{DType::kFloat32, {4}}};
  const Attributes rms{{"center", false}};
  Refuse(rows, {"layer_norm_backward", {x, x, statistic}});
  Refuse(rows, {"layer_norm_backward", {x, x, statistic, weight, weight}, rms});
  Refuse(rows, {"layer_norm_backward", {x, x, statistic, weight}});
  Refuse(rows, {"layer_norm_backward", {x, x, {{DType::kFloat32, {3}}}}, rms});
  Refuse(rows, {"layer_norm_backward", {x, x, {{DType::kFloat64, {3, 1}}}}, rms});
  Refuse(rows, {"layer_norm_backward", {{{DType::kFloat32, {4, 3}}}, x, statistic}, rms});
  Refuse(rows, {"layer_norm_backward", {{{DType::kFloat16, {3, 4}}}, x, statistic}, rms});
  for (const std::vector<int64_t>& gradients :
       {std::vector<int64_t>{3}, {-1}, {0, 0}, {1, 0}, {0, 1, 2, 2}}) {
    Refuse(rows, {"layer_norm_backward", {x, x, statistic, statistic}, {{"gradients", gradients}}});
  }
}

}  // namespace

void AddNetworkRows(Rows& rows) {
  AddSoftmaxBackward(rows);
  AddLayerNormRows(rows);
  AddLayerNormBackwardRows(rows);
}

}  // namespace tensord::conformance
