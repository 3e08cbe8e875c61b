// Scans.
#include <cmath>
#include <utility>

#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

struct Case {
  Shape shape;
  int64_t axis;
};
const Case kCases[] = {{{}, 0},
                       {{}, -1},
                       {{1}, 0},
                       {{7}, 0},
                       {{8}, -1},
                       {{65}, 0},
                       {{3, 5}, 0},
                       {{3, 5}, 1},
                       {{5, 1}, 0},
                       {{1, 5}, -1},
                       {{3, 1100}, 1},
                       {{1100, 3}, 0},
                       {{40, 270}, 0},
                       {{2, 3, 4}, 1},
                       {{2, 3, 4, 5, 2}, 0},
                       {{2, 3, 4, 5, 2}, 2},
                       {{2, 3, 4, 5, 2}, -1},
                       {{2, 0}, 0},
                       {{2, 0}, 1},
                       {{0, 3}, 0}};

Attributes Mode(int64_t axis, bool exclusive, bool reverse) {
  Attributes attrs = {{"axis", axis}};
  if (exclusive) attrs.Set("exclusive", true);
  if (reverse) attrs.Set("reverse", true);
  return attrs;
}

// Returns elements for a scan. Products of the factors for cumprod neither overflow nor underflow.
Input ScannedInput(const std::string& op, DType dtype, const Shape& shape) {
  if (op == "cumsum" || !IsFloating(dtype)) return {{dtype, shape}};
  // Two factors whose positions differ by 4 have a product of about ±1.
  constexpr double kFactors[] = {1.25, -0.75, 1.5, 0.625, 0.8, 4 / 3.0, -2 / 3.0, 1.6};
  std::vector<double> values;
  for (int64_t i = 0; i < shape.num_elements(); ++i) values.push_back(kFactors[i * 5 % 8]);
  return {{dtype, shape}, Fill::kValues, values};
}

// Floating dtypes are accumulated in double.
Bound ScanBound(DType dtype, int64_t n) {
  if (!IsFloating(dtype)) return {};
  if (dtype != DType::kFloat64) return {.ulps = 1, .epsilons = 1e-3};
  return {.ulps = 1, .epsilons = static_cast<double>(n) / 2};
}

void AddShapes(Rows& rows, const std::string& op, DType dtype) {
  for (const Case& c : kCases) {
    for (bool exclusive : {false, true}) {
      for (bool reverse : {false, true}) {
        rows.push_back({op,
                        {ScannedInput(op, dtype, c.shape)},
                        Mode(c.axis, exclusive, reverse),
                        ScanBound(dtype, c.shape.num_elements())});
      }
    }
  }
}

void AddValues(Rows& rows, const std::string& op, DType dtype) {
  const double nan = std::nan(""), inf = INFINITY;
  const double subnormal = dtype == DType::kFloat16 ? 0x1p-24 : 0x1p-130;
  for (const std::vector<double>& values : {std::vector<double>{1, nan, 3, 4},
                                            {1, inf, 2, -inf},
                                            {-inf, 1, 2, 3},
                                            {-0.0, -0.0, 1, 0.0},
                                            {subnormal, 2, subnormal, 2},
                                            {inf, 0, 1, 1}}) {
    for (bool reverse : {false, true}) {
      rows.push_back({op,
                      {{{dtype, {4}}, Fill::kValues, values}},
                      Mode(0, false, reverse),
                      ScanBound(dtype, 4)});
      rows.push_back({op,
                      {{{dtype, {2, 2}}, Fill::kValues, values}},
                      Mode(0, true, reverse),
                      ScanBound(dtype, 4)});
    }
  }
}

void AddDTypes(Rows& rows, const std::string& op) {
  for (DType in : kRealDTypes) {
    for (DType dtype : kRealDTypes) {
      const Attributes attrs = {{"axis", int64_t{1}}, {"dtype", dtype}};
      if (IsBool(dtype)) {
        Refuse(rows, {op, {{{in, {2, 6}}}}, attrs});
        continue;
      }
      rows.push_back({op, {{{in, {2, 6}}, Fill::kUnit}}, attrs, ScanBound(dtype, 6)});
    }
  }
}

}  // namespace

void AddScanRows(Rows& rows) {
  for (const std::string op : {"cumsum", "cumprod"}) {
    for (DType dtype : kRealDTypes) {
      AddShapes(rows, op, dtype);
      if (IsFloating(dtype)) {
        AddValues(rows, op, dtype);
      } else {
        rows.push_back({op, {{{dtype, {40, 3}}, Fill::kSpecial}}, {{"axis", int64_t{0}}}});
        rows.push_back({op, {{{dtype, {3, 40}}, Fill::kWide}}, {{"axis", int64_t{1}}}});
      }
    }
    AddDTypes(rows, op);
    for (bool reverse : {false, true}) {  // lines that several threads or blocks scan
      for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32}) {
        rows.push_back({op,
                        {ScannedInput(op, dtype, {200000})},
                        Mode(0, reverse, reverse),
                        ScanBound(dtype, 200000)});
        rows.push_back({op,
                        {ScannedInput(op, dtype, {30000, 4})},
                        Mode(0, reverse, reverse),
                        ScanBound(dtype, 30000)});
      }
    }
    Refuse(rows, {op, {{{DType::kFloat32, {2, 3}}}}, {{"axis", int64_t{2}}}});
    Refuse(rows, {op, {{{DType::kFloat32, {2, 3}}}}, {}});
  }
  // Sums of 16-bit elements are rounded one by one.
  rows.push_back({"cumsum",
                  {{{DType::kBFloat16, {4000}}, Fill::kPositive}},
                  {{"axis", int64_t{0}}},
                  ScanBound(DType::kBFloat16, 4000)});
  // The product of the first two is beyond float32, that of all three isn't.
  rows.push_back({"cumprod",
                  {{{DType::kFloat32, {3}}, Fill::kValues, {1e30, 1e30, 1e-30}}},
                  {{"axis", int64_t{0}}},
                  ScanBound(DType::kFloat32, 3)});
}

}  // namespace tensord::conformance
