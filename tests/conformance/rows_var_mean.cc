// The variance with the mean.
#include <cmath>
#include <utility>

#include "tensord/tests/conformance/reduction_cases.h"

namespace tensord::conformance {
namespace {

Row VarMeanRow(Input input, Attributes attrs) {
  // float32 and the 16-bit dtypes are computed in double.
  const Bound bound{.ulps = 1, .epsilons = input.spec.dtype == DType::kFloat64 ? 16.0 : 0.01};
  return {.op = "var_mean",
          .inputs = {std::move(input)},
          .attrs = std::move(attrs),
          .bound = bound,
          .num_outputs = 2};
}

// Rows of var and std, which have one result.
void AddSpreads(Rows& rows, DType dtype) {
  for (const char* op : {"var", "std"}) {
    for (const ReductionCase& c : AllReductionCases()) {
      for (double correction : {1.0, 0.0, 2.0}) {
        Row row = VarMeanRow({{dtype, c.shape}}, With(c, correction == 0));
        row.op = op;
        row.num_outputs = 1;
        row.attrs.Set("correction", correction);
        rows.push_back(std::move(row));
      }
    }
  }
}

void AddShapes(Rows& rows, DType dtype) {
  AddSpreads(rows, dtype);
  for (const ReductionCase& c : AllReductionCases()) {
    for (bool keepdims : {false, true}) {
      rows.push_back(VarMeanRow({{dtype, c.shape}}, With(c, keepdims)));
    }
    for (double correction : {0.0, 2.0, 0.5, -1.0, 1e9}) {
      Attributes attrs = With(c, false);
      attrs.Set("correction", correction);
      rows.push_back(VarMeanRow({{dtype, c.shape}}, attrs));
    }
  }
  rows.push_back(VarMeanRow({{dtype, {5, 4}}}, {{"correction", int64_t{0}}}));
  for (const Axes& axes : {Axes{0}, Axes{1}, Axes{}}) {
    rows.push_back(VarMeanRow({{dtype, {1100, 90}}, Fill::kWide}, {{"axes", axes}}));
    rows.push_back(VarMeanRow({{dtype, {90, 1100}}}, {{"axes", axes}}));
  }
}

// Adds rows that reduce a vector, and a column, of these values.
void AddValues(Rows& rows, DType dtype, const std::vector<double>& values) {
  const auto n = static_cast<int64_t>(values.size());
  rows.push_back(VarMeanRow({{dtype, {n}}, Fill::kValues, values}, {}));
  rows.push_back(VarMeanRow({{dtype, {n, 1}}, Fill::kValues, values}, {{"axes", Axes{0}}}));
}

void AddSpecialValues(Rows& rows, DType dtype) {
  const double nan = std::nan(""), inf = INFINITY;
  const double subnormal = dtype == DType::kFloat16 ? 0x1p-24 : 0x1p-130;
  for (const std::vector<double>& values : {std::vector<double>{1, nan, 3},
                                            {1, inf, 2},
                                            {inf, 1, 2},
                                            {-inf, 1, inf},
                                            {-inf, -inf},
                                            {0.0, -0.0},
                                            {-0.0, -0.0},
                                            {subnormal, 3 * subnormal, subnormal},
                                            {2.5, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5}}) {
    AddValues(rows, dtype, values);
  }
  // The variance of equal elements is 0, also of those whose sum isn't exact.
  rows.push_back(VarMeanRow({{dtype, {3001}}, Fill::kValues, std::vector<double>(3001, 0.1)}, {}));
  rows.back().bounds = {Bound{}};
  rows.push_back(VarMeanRow({{dtype, {1500, 3}}, Fill::kValues, std::vector<double>(4500, 0.1)},
                            {{"axes", Axes{0}}}));
  rows.back().bounds = {Bound{}};
}

// Adds rows whose variance is small compared with the mean.
void AddLargeMeans(Rows& rows, DType dtype, double mean) {
  std::vector<double> values;
  for (int i = 0; i < 6000; ++i) values.push_back(mean + (i * 37 % 101) / 32.0);
  rows.push_back(VarMeanRow({{dtype, {6000}}, Fill::kValues, values}, {}));
  for (const Axes& axes : {Axes{0}, Axes{1}, Axes{0, 1}}) {
    rows.push_back(VarMeanRow({{dtype, {60, 100}}, Fill::kValues, values}, {{"axes", axes}}));
    rows.push_back(VarMeanRow({{dtype, {3000, 2}}, Fill::kValues, values}, {{"axes", axes}}));
  }
}

}  // namespace

void AddVarMeanRows(Rows& rows) {
  for (DType dtype : kFloatingDTypes) {
    AddShapes(rows, dtype);
    AddSpecialValues(rows, dtype);
    Refuse(rows, VarMeanRow({{dtype, {2, 3}}}, {{"axes", Axes{2}}}));
    Refuse(rows, VarMeanRow({{dtype, {2, 3}}}, {{"axes", Axes{1, -1}}}));
    Refuse(rows, VarMeanRow({{dtype, {2, 3}}}, {{"correction", std::nan("")}}));
    Refuse(rows, VarMeanRow({{dtype, {2, 3}}}, {{"correction", INFINITY}}));
  }
  AddLargeMeans(rows, DType::kFloat32, 100000);
  AddLargeMeans(rows, DType::kFloat64, 1e12);
  rows.push_back(VarMeanRow({{DType::kFloat32, {1000, 1000}}}, {}));
  rows.push_back(VarMeanRow({{DType::kFloat32, {1000, 1000}}}, {{"axes", Axes{0}}}));
  for (DType dtype : kIntegerDTypes) Refuse(rows, VarMeanRow({{dtype, {3}}}, {}));
  Refuse(rows, VarMeanRow({{DType::kBool, {3}}}, {}));
}

}  // namespace tensord::conformance
