// Special functions.
#include <string>

#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

Bound SpecialBound(DType dtype) {
  // Near a zero, a result is the difference of two larger terms.
  if (dtype == DType::kFloat64) return {.ulps = 4, .epsilons = 64};
  Bound bound = Ulps(dtype, 1);
  bound.absolute = 1e-14;
  return bound;
}

Input Of(DType dtype, std::vector<double> values) {
  return {{dtype, {static_cast<int64_t>(values.size())}}, Fill::kValues, std::move(values)};
}

// Adds rows of a function of one operand. `points` are values at which it is special.
void AddOfOne(Rows& rows, const std::string& op, const std::vector<double>& points,
              const Attributes& attrs = {}) {
  for (DType dtype : kFloatingDTypes) {
    const Bound bound = SpecialBound(dtype);
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 5}}) {
      rows.push_back({op, {{{dtype, shape}}}, attrs, bound});
    }
    rows.push_back({op, {{{dtype, {333}}, Fill::kPositive}}, attrs, bound});
    rows.push_back({op, {Of(dtype, points)}, attrs, bound});
    // The reference of polygamma would need as many terms as the smallest element.
    if (op != "polygamma") rows.push_back({op, {{{dtype, {48}}, Fill::kSpecial}}, attrs, bound});
  }
  rows.push_back({op, {{{DType::kFloat32, {67, 129}}}}, attrs, SpecialBound(DType::kFloat32)});
  for (DType dtype : {DType::kInt32, DType::kBool}) {
    rows.push_back({op, {{{dtype, {9}}, Fill::kPositive}}, attrs, SpecialBound(DType::kFloat32)});
  }
  Refuse(rows, {op, {{{DType::kComplex64, {3}}}}, attrs});
}

void AddOfTwo(Rows& rows, const std::string& op, Fill first, const std::vector<double>& x,
              const std::vector<double>& y) {
  for (DType dtype : kFloatingDTypes) {
    // xlogy and xlog1py compute float32 and 16-bit dtypes in float32, and so round twice.
    const Bound bound =
        op == "zeta" || dtype == DType::kFloat64 ? SpecialBound(dtype) : Ulps(dtype, 3);
    rows.push_back({op, {{{dtype, {3, 5}}, first}, {{dtype, {5}}, Fill::kPositive}}, {}, bound});
    rows.push_back({op, {{{dtype, {7, 1}}, first}, {{dtype, {1, 9}}}}, {}, bound});
    rows.push_back({op, {{{dtype, {}}, first}, {{dtype, {0}}}}, {}, bound});
    rows.push_back({op, {Of(dtype, x), Of(dtype, y)}, {}, bound});
  }
  rows.push_back(
      {op,
       {{{DType::kInt64, {4}}, Fill::kPositive}, {{DType::kFloat64, {4}}, Fill::kPositive}},
       {},
       SpecialBound(DType::kFloat64)});
  Refuse(rows, {op, {{{DType::kComplex64, {3}}}, {{DType::kFloat32, {3}}}}});
}

}  // namespace

void AddSpecialRows(Rows& rows) {
  AddOfOne(rows, "lgamma",
           {0.0, -0.0, -1, -7, 1, 2, 0.5, -0.5, -3.25, 8, 7.9375, 1.0009765625, 1.9990234375, 1e-30,
            1000, kInfinity, -kInfinity, kNan});
  AddOfOne(
      rows, "digamma",
      {0.0, -0.0, -1, -7, 1, 2, 0.5, -0.5, -3.25, 10, 9.875, 1000, kInfinity, -kInfinity, kNan});
  for (int64_t n : {0, 1, 2, 5}) {
    AddOfOne(
        rows, "polygamma",
        {0.5, 1, 2, 7.5, -0.5, -3.25, -16.5, -30.25, -300.5, 20, 100, 0.0, -1, kInfinity, kNan},
        {{"n", n}});
  }
  for (const char* op : {"i0", "i0e", "i1", "i1e"}) {
    AddOfOne(rows, op,
             {0.0, -0.0, 0.001, 1, -1, 24.875, 25, -25, 25.125, 50, -80, 1e5, kInfinity, -kInfinity,
              kNan});
  }
  AddOfOne(rows, "spherical_bessel_j0",
           {0.0, 0.001, 0.4375, 0.5, -0.5, 3, 100, kInfinity, -kInfinity, kNan});
  AddOfOne(rows, "sinc", {0.0, -0.0, 0.25, 0.5, 1e-4, kNan});
  AddOfOne(rows, "entr", {0.0, -0.0, 1, -1, 0.5, 1e4, kInfinity, -kInfinity, kNan});
  AddOfTwo(rows, "zeta", Fill::kPositive, {1, 2, 0.5, 3, 2, 2.5, 4, 2, kNan, 2, 2, 3, 4, 2.5, kNan},
           {2, 1, 2, 0.5, 0, -0.5, -2.5, kInfinity, 2, kNan, -16.5, -30.25, -300.5, -16.5, 0});
  for (const char* op : {"xlogy", "xlog1py"}) {
    AddOfTwo(rows, op, Fill::kPlain, {0, 0, 0, 0, 1, 2, -3, kNan, 1, kInfinity},
             {0, -2, kNan, kInfinity, 0.5, kInfinity, 4, 2, kNan, 3});
  }
  Refuse(rows, {"polygamma", {{{DType::kFloat32, {3}}}}, {{"n", int64_t{-1}}}});
}

}  // namespace tensord::conformance
