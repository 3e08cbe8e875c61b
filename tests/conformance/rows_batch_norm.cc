// batch_norm and its gradient.
#include <cmath>
#include <utility>
#include <vector>

#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

const Shape kBatchNormShapes[] = {{4, 3},       {2, 1},          {70, 5},       {3, 2, 7},
                                  {2, 3, 4, 5}, {5, 4, 64},      {2, 3, 9, 10}, {1, 2, 30, 40},
                                  {40, 7, 3},   {2, 2, 3, 4, 5}, {3, 0, 4},     {2, 2, 20000},
                                  {20000, 2},   {9000, 2, 3}};

// Returns the bound of a few rounded operations. Statistics are added in float64, so their sums add
// almost nothing to it.
Bound OfFewOperations(DType dtype) {
  const bool narrow = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  return {.ulps = narrow ? 1.0 : 2.0, .epsilons = 6};
}

// Returns the bound of a result that sums over a channel contribute to. Sums of float64 are added
// in float64, too, so their error grows with the number of terms.
Bound BatchNormBound(DType dtype, const Shape& x) {
  Bound bound = OfFewOperations(dtype);
  if (dtype == DType::kFloat64 && x.dim(1) > 0) {
    bound.epsilons += std::sqrt(static_cast<double>(x.num_elements() / x.dim(1)));
  }
  return bound;
}

struct Options {
  bool training = false;
  int inputs = 5;
  bool wide = false;  // true: parameters and running statistics have the dtype of the statistics
};

void AddBatchNorm(Rows& rows, const Input& x, const Options& options) {
  const DType dtype = x.spec.dtype, parameters = options.wide ? StatisticsOf(dtype) : dtype;
  const Shape channels({x.spec.shape.dim(1)});
  Row row{"batch_norm", {x}};
  row.inputs.push_back({{parameters, channels}, Fill::kUnit});
  row.inputs.push_back({{parameters, channels}, Fill::kPositive});
  for (int i = 3; i < options.inputs; ++i) row.inputs.push_back({{parameters, channels}});
  row.bound = BatchNormBound(dtype, x.spec.shape);
  if (options.training) {
    row.attrs.Set("training", true);
    row.num_outputs = 5;
    const Bound statistics = BatchNormBound(StatisticsOf(dtype), x.spec.shape);
    const Bound running = BatchNormBound(parameters, x.spec.shape);
    row.bounds = {row.bound, statistics, statistics, running, running};
  }
  rows.push_back(std::move(row));
}

void AddBatchNormBackward(Rows& rows, DType dtype, const Shape& shape, const Options& options,
                          std::vector<int64_t> gradients) {
  const DType parameters = options.wide ? StatisticsOf(dtype) : dtype;
  const Shape channels({shape.dim(1)});
  Row row{"batch_norm_backward", {{{dtype, shape}}, {{dtype, shape}}}};
  row.inputs.push_back({{StatisticsOf(dtype), channels}, Fill::kUnit});
  row.inputs.push_back({{StatisticsOf(dtype), channels}, Fill::kPositive});
  if (options.inputs > 4) row.inputs.push_back({{parameters, channels}});
  if (options.training) row.attrs.Set("training", true);
  row.num_outputs = gradients.empty() ? 3 : static_cast<int>(gradients.size());
  row.bound = BatchNormBound(dtype, shape);
  const DType of_parameters = options.inputs > 4 ? parameters : dtype;
  for (int i = 0; i < row.num_outputs; ++i) {
    const int64_t operand = gradients.empty() ? i : gradients[i];
    row.bounds.push_back(BatchNormBound(operand == 0 ? dtype : of_parameters, shape));
  }
  if (!gradients.empty()) row.attrs.Set("gradients", std::move(gradients));
  rows.push_back(std::move(row));
}

void AddSpecialChannels(Rows& rows, DType dtype) {
  const double nan = std::nan(""), inf = INFINITY;
  for (const bool training : {false, true}) {
    AddBatchNorm(rows,
                 {{dtype, {2, 4, 2}},
                  Fill::kValues,
                  {nan, 1, inf, 1, 2.5, 2.5, -0.0, 0, 1, 2, 3, 4, 2.5, 2.5, 0, 0}},
                 {.training = training});
  }
  // The mean is large compared with the deviations.
  std::vector<double> values;
  for (int i = 0; i < 600; ++i) values.push_back(1000 + i * 37 % 101);
  AddBatchNorm(rows, {{dtype, {3, 2, 100}}, Fill::kValues, values},
               {.training = true, .inputs = 3});
  for (const double momentum : {0.0, 1.0, 0.3}) {
    AddBatchNorm(rows, {{dtype, {3, 2, 5}}}, {.training = true});
    rows.back().attrs.Set("momentum", momentum);
    rows.back().attrs.Set("eps", 0.5);
  }
}

void RefuseNorm(Rows& rows, const char* op, std::vector<Input> inputs, Attributes attrs = {}) {
  Refuse(rows, {op, std::move(inputs), std::move(attrs)});
}

void AddBatchNormRefusals(Rows& rows) {
  const Input x{{DType::kFloat32, {2, 3, 4}}}, c{{DType::kFloat32, {3}}};
  const Attributes training{{"training", true}};
  RefuseNorm(rows, "batch_norm", {x, c});
  RefuseNorm(rows, "batch_norm", {{{DType::kFloat32, {3}}}, c, c});
  RefuseNorm(rows, "batch_norm", {{{DType::kInt32, {2, 3}}}, c, c});
  RefuseNorm(rows, "batch_norm", {x, c, {{DType::kFloat32, {4}}}});
  RefuseNorm(rows, "batch_norm", {x, c, c, {{DType::kFloat64, {3}}}});
  RefuseNorm(rows, "batch_norm", {x, c, c}, {{"eps", std::nan("")}});
  RefuseNorm(rows, "batch_norm", {x, c, c}, {{"momentum", std::nan("")}});
  RefuseNorm(rows, "batch_norm", {{{DType::kFloat32, {1, 3}}}, c, c}, training);
  RefuseNorm(rows, "batch_norm", {{{DType::kFloat32, {0, 3}}}, c, c}, training);
  RefuseNorm(rows, "batch_norm_backward", {x, x, c});
  RefuseNorm(rows, "batch_norm_backward", {{{DType::kFloat32, {2, 3}}}, x, c, c});
  RefuseNorm(rows, "batch_norm_backward", {{{DType::kFloat64, {2, 3, 4}}}, x, c, c});
  RefuseNorm(rows, "batch_norm_backward", {x, x, c, c, x});
  RefuseNorm(rows, "batch_norm_backward", {x, x, c, c},
             {{"gradients", std::vector<int64_t>{1, 1}}});
}

}  // namespace

void AddBatchNormRows(Rows& rows) {
  for (const DType dtype : kFloatingDTypes) {
    for (const Shape& shape : kBatchNormShapes) {
      for (const bool training : {false, true}) {
        AddBatchNorm(rows, {{dtype, shape}}, {.training = training});
        AddBatchNorm(rows, {{dtype, shape}}, {.training = training, .inputs = 3, .wide = true});
        AddBatchNorm(rows, {{dtype, shape}}, {.training = training, .inputs = 4, .wide = true});
        AddBatchNormBackward(rows, dtype, shape, {.training = training}, {});
        AddBatchNormBackward(rows, dtype, shape, {.training = training, .wide = true}, {0, 2});
        AddBatchNormBackward(rows, dtype, shape, {.training = training, .inputs = 4}, {0});
        AddBatchNormBackward(rows, dtype, shape, {.training = training, .inputs = 4}, {1});
      }
    }
    AddSpecialChannels(rows, dtype);
    AddBatchNorm(rows, {{dtype, {0, 3, 2}}}, {});
    AddBatchNormBackward(rows, dtype, {0, 3, 2}, {.training = true}, {});
  }
  AddBatchNormRefusals(rows);
}

}  // namespace tensord::conformance
