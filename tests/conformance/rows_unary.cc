// Unary elementwise ops and cast.
#include "tensord/tests/conformance/elementwise_cases.h"

namespace tensord::conformance {
namespace {

const Shape kUnaryShapes[] = {{}, {0}, {1}, {7}, {3, 5}, {2, 0, 3}, {67, 129}, {2, 3, 4, 5, 2}};
const Shape kLarge = {1000, 1000};

Bound UnaryBound(const UnaryCase& op, DType dtype) {
  Bound bound = Ulps(dtype, op.ulps);
  bound.epsilons = op.epsilons;
  bound.any_zero_sign = op.any_zero_sign;
  if (op.ulps > 0) {
    // If exp(-x) overflows, sigmoid and SiLU are nearly 0, and a result of 0 is correct, too.
    bound.absolute = dtype == DType::kFloat64 ? 1e-300 : 1e-36;
  }
  return bound;
}

void AddFloating(Rows& rows, const UnaryCase& op, const Attributes& attrs) {
  for (DType dtype : kFloatingDTypes) {
    const Bound bound = UnaryBound(op, dtype);
    for (const Shape& shape : kUnaryShapes) {
      rows.push_back({op.op, {{{dtype, shape}, op.fill}}, attrs, bound});
    }
    rows.push_back({op.op, {{{dtype, {333}}, Fill::kUnit}}, attrs, bound});
    rows.push_back({op.op, {{{dtype, {777}}, Fill::kWide}}, attrs, bound});
    rows.push_back({op.op, {{{dtype, {96}}, Fill::kSpecial}}, attrs, bound});
    rows.push_back({op.op, {{{dtype, {3, 31}}, Fill::kSpecial}}, attrs, bound});
  }
  rows.push_back({op.op, {{{DType::kFloat32, kLarge}}}, attrs, UnaryBound(op, DType::kFloat32)});
}

// Adds rows with integers and bool. The op reads them as float32, or refuses them if it is
// floating-only.
void AddFromIntegers(Rows& rows, const UnaryCase& op) {
  for (DType dtype : kRealDTypes) {
    if (IsFloating(dtype)) continue;
    for (Fill fill : {Fill::kUnit, Fill::kPositive, Fill::kSpecial}) {
      rows.push_back({op.op, {{{dtype, {6, 16}}, fill}}, {}, UnaryBound(op, DType::kFloat32)});
      if (op.floating_only) rows.back().refusal = absl::StatusCode::kInvalidArgument;
    }
  }
}

void AddNumeric(Rows& rows, const UnaryCase& op) {
  AddFloating(rows, op, {});
  for (DType dtype : kIntegerDTypes) {
    for (const Shape& shape : kUnaryShapes) rows.push_back({op.op, {{{dtype, shape}}}, {}, {}});
    for (Fill fill : {Fill::kWide, Fill::kSpecial}) {
      rows.push_back({op.op, {{{dtype, {9, 33}}, fill}}});
    }
  }
  rows.push_back({op.op, {{{DType::kBool, {96}}, Fill::kSpecial}}});
  if (!op.of_bool) rows.back().refusal = absl::StatusCode::kInvalidArgument;
}

// Adds rows whose results are tiny. By tanh, subnormal results are exact, too.
void AddGeluTails(Rows& rows, const UnaryCase& op) {
  std::vector<double> values;
  for (double x = -4; x > -24; x -= 0.125) values.push_back(x);
  const Shape shape = {static_cast<int64_t>(values.size())};
  for (DType dtype : kFloatingDTypes) {
    for (const bool by_tanh : {false, true}) {
      rows.push_back({op.op,
                      {{{dtype, shape}, Fill::kValues, values}},
                      {{"approximate", std::string(by_tanh ? "tanh" : "none")}},
                      by_tanh ? Ulps(dtype, op.ulps) : UnaryBound(op, dtype)});
    }
  }
}

void AddComplexCasts(Rows& rows) {
  for (DType complex : kComplexDTypes) {
    rows.push_back({"cast", {{{complex, {3, 5}}, Fill::kSpecial}}, {{"dtype", complex}}});
    for (DType other : kAllDTypes) {
      if (other == complex) continue;
      for (const auto& [from, to] : {std::pair(complex, other), std::pair(other, complex)}) {
        rows.push_back({"cast", {{{from, {3}}}}, {{"dtype", to}}});
        rows.back().refusal = absl::StatusCode::kInvalidArgument;
      }
    }
  }
}

void AddCasts(Rows& rows) {
  AddComplexCasts(rows);
  for (DType from : kRealDTypes) {
    for (DType to : kRealDTypes) {
      const Attributes attrs{{"dtype", to}};
      for (const Shape& shape : {Shape{}, Shape{0, 4}, Shape{13, 7}}) {
        rows.push_back({"cast", {{{from, shape}}}, attrs});
      }
      for (Fill fill : {Fill::kUnit, Fill::kWide, Fill::kSpecial}) {
        rows.push_back({"cast", {{{from, {8, 40}}, fill}}, attrs});
      }
    }
  }
  // Truncation toward zero, saturation at both ends, and the largest doubles below 2^31 and 2^63.
  const std::vector<double> reals = {0.9,
                                     -0.9,
                                     1.5,
                                     -1.5,
                                     127.9,
                                     128,
                                     -128.9,
                                     -129,
                                     255.9,
                                     256,
                                     -1,
                                     2147483647.5,
                                     2147483648.,
                                     -2147483649.,
                                     9223372036854774784.,
                                     9223372036854775808.,
                                     18446744073709549568.,
                                     18446744073709551616.,
                                     32767.9,
                                     -32769,
                                     65535.9,
                                     65536,
                                     4294967295.5,
                                     -1e300};
  for (DType from : {DType::kFloat64, DType::kFloat32}) {
    for (DType to : kIntegerDTypes) {
      rows.push_back({"cast", {{{from, {24}}, Fill::kValues, reals}}, {{"dtype", to}}});
    }
  }
  // Ties round to even, and values beyond the largest finite value become infinite.
  const std::vector<double> halfway = {2049, 2051,    65519,     65520,  257,
                                       259,  0x1p-25, 0x1.8p-25, -65520, 0x1.ffp127};
  for (DType to : {DType::kFloat16, DType::kBFloat16}) {
    rows.push_back({"cast", {{{DType::kFloat32, {10}}, Fill::kValues, halfway}}, {{"dtype", to}}});
  }
}

}  // namespace

void AddUnaryRows(Rows& rows) {
  for (const UnaryCase& op : UnaryCases()) {
    for (DType dtype : kComplexDTypes) {
      rows.push_back({op.op, {{{dtype, {3}}}}});
      rows.back().refusal = absl::StatusCode::kInvalidArgument;
    }
    if (op.whole != nullptr) {
      AddNumeric(rows, op);
    } else {
      AddFloating(rows, op, {});
      AddFromIntegers(rows, op);
    }
    if (absl::string_view(op.op) != "gelu") continue;
    AddFloating(rows, op, {{"approximate", std::string("none")}});
    AddFloating(rows, op, {{"approximate", std::string("tanh")}});
    AddGeluTails(rows, op);
  }
  Row unknown{"gelu", {{{DType::kFloat32, {3}}}}, {{"approximate", std::string("sine")}}};
  unknown.refusal = absl::StatusCode::kInvalidArgument;
  rows.push_back(unknown);
  AddCasts(rows);
}

}  // namespace tensord::conformance
