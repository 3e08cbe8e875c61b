// prod, and the attribute "dtype" of sum and prod.
#include <cmath>
#include <utility>

#include "tensord/tests/conformance/reduction_cases.h"

namespace tensord::conformance {
namespace {

// Returns factors whose products neither overflow nor underflow.
Input Factors(DType dtype, const Shape& shape) {
  if (!IsFloating(dtype)) return {{dtype, shape}};
  // Two factors whose positions differ by 4 have a product of about ±1.
  constexpr double kFactors[] = {1.25, -0.75, 1.5, 0.625, 0.8, 4 / 3.0, -2 / 3.0, 1.6};
  std::vector<double> values;
  for (int64_t i = 0; i < shape.num_elements(); ++i) values.push_back(kFactors[i * 5 % 8]);
  return {{dtype, shape}, Fill::kValues, values};
}

// Returns the bound of a product, which is computed in double.
Bound ProdBound(DType dtype, int64_t n) {
  if (!IsFloating(dtype)) return {};
  if (dtype != DType::kFloat64) return {.ulps = 1};
  return {.ulps = 1, .epsilons = static_cast<double>(n) / 2};
}

void AddProducts(Rows& rows, DType dtype) {
  for (const ReductionCase& c : AllReductionCases()) {
    const Bound bound = ProdBound(dtype, c.shape.num_elements());
    for (bool keepdims : {false, true}) {
      rows.push_back({"prod", {Factors(dtype, c.shape)}, With(c, keepdims), bound});
    }
  }
  rows.push_back(
      {"prod", {{{dtype, {5, 30}}, Fill::kWide}}, {{"axes", Axes{0}}}, ProdBound(dtype, 5)});
  if (!IsFloating(dtype)) {
    rows.push_back({"prod", {{{dtype, {4, 32}}, Fill::kSpecial}}, {{"axes", Axes{0}}}});
    return;
  }
  const double nan = std::nan(""), inf = INFINITY;
  const double subnormal = dtype == DType::kFloat16 ? 0x1p-24 : 0x1p-130;
  for (const std::vector<double>& values : {std::vector<double>{1, nan, 0},
                                            {inf, -2, 3},
                                            {0, inf, 1},
                                            {-0.0, 3, 2},
                                            {0, -1, -1},
                                            {subnormal, 2, 2},
                                            {-1, -1, -1}}) {
    rows.push_back({"prod", {{{dtype, {3}}, Fill::kValues, values}}, {}, ProdBound(dtype, 3)});
  }
}

// Adds rows for all dtypes of inputs, and all dtypes to which they may be cast.
void AddDTypes(Rows& rows) {
  for (const char* op : {"sum", "prod"}) {
    const bool is_prod = std::string(op) == "prod";
    for (DType in : kRealDTypes) {
      for (DType dtype : kRealDTypes) {
        // A product of few elements, so that it stays in the range of the 16-bit dtypes.
        const Shape shape = is_prod && IsFloating(dtype) ? Shape({3, 4}) : Shape({33, 20});
        const Bound bound = is_prod ? ProdBound(dtype, 3) : SumBound(dtype, shape.dim(0));
        for (const Axes& axes : {Axes{0}, Axes{1}}) {
          const Attributes attrs = {{"axes", axes}, {"dtype", dtype}};
          rows.push_back({op, {{{in, shape}, Fill::kUnit}}, attrs, bound});
        }
      }
      rows.push_back(
          {op, {{{in, {4, 30}}, Fill::kSpecial}}, {{"axes", Axes{0}}, {"dtype", DType::kInt32}}});
      rows.push_back(
          {op, {{{in, {5, 30}}, Fill::kWide}}, {{"axes", Axes{0}}, {"dtype", DType::kInt8}}});
      rows.push_back(
          {op, {{{in, {5, 30}}, Fill::kSpecial}}, {{"axes", Axes{0}}, {"dtype", DType::kBool}}});
    }
  }
  // Partial results beyond float16, whose sum is a float16.
  rows.push_back({"sum",
                  {{{DType::kInt32, {3}}, Fill::kValues, {60000, 60000, -60000}}},
                  {{"dtype", DType::kFloat16}},
                  {.ulps = 1}});
}

}  // namespace

void AddProdRows(Rows& rows) {
  for (DType dtype : kRealDTypes) AddProducts(rows, dtype);
  // The product of the first two is beyond float32.
  rows.push_back(
      {"prod", {{{DType::kFloat32, {3}}, Fill::kValues, {1e30, 1e30, 1e-30}}}, {}, {.ulps = 1}});
  AddDTypes(rows);
  for (const Axes& axes : {Axes{2}, Axes{1, -1}}) {
    Row row{"prod", {{{DType::kFloat32, {2, 3}}}}, {{"axes", axes}}};
    row.refusal = absl::StatusCode::kInvalidArgument;
    rows.push_back(std::move(row));
  }
}

}  // namespace tensord::conformance
