#include "tensord/tests/conformance/elementwise_cases.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tensord::conformance {
namespace {

int64_t WrappingAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t WrappingSub(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
int64_t WrappingMul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

uint64_t Power(uint64_t base, uint64_t exponent) {
  uint64_t result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= base;
    base *= base;
  }
  return result;
}

int64_t IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    return 0;
  }
  return static_cast<int64_t>(Power(static_cast<uint64_t>(base), static_cast<uint64_t>(exponent)));
}

double LargerOrNan(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  return std::max(a, b);
}
double SmallerOrNan(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  return std::min(a, b);
}
int64_t Larger(int64_t a, int64_t b) { return std::max(a, b); }
int64_t Smaller(int64_t a, int64_t b) { return std::min(a, b); }
uint64_t LargerUnsigned(uint64_t a, uint64_t b) { return std::max(a, b); }
uint64_t SmallerUnsigned(uint64_t a, uint64_t b) { return std::min(a, b); }

int64_t Same(int64_t x) { return x; }

double Sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x; }

// Computes the inverse by Newton's method, from a first approximation of Winitzki (2008).
double ErfInverse(double x) {
  const long double magnitude = std::fabs(x);
  if (x == 0) return x;
  if (!(magnitude < 1)) return magnitude == 1 ? x / 0.0 : std::nan("");
  const long double half_sqrt_pi = std::sqrt(std::acos(-1.0L)) / 2;
  if (magnitude < 1e-5L) {
    const long double y = half_sqrt_pi * magnitude;
    return static_cast<double>(std::copysign(y + y * y * y / 3, static_cast<long double>(x)));
  }
  const long double rest = 1 - magnitude;
  const long double log = std::log(rest * (1 + magnitude)), a = 0.147L;
  const long double b = 2 / (std::acos(-1.0L) * a) + log / 2;
  long double y = std::sqrt(std::sqrt(b * b - log / a) - b);
  for (int i = 0; i < 5; ++i) {
    const long double error = magnitude < 0.5L ? magnitude - std::erf(y) : std::erfc(y) - rest;
    y += error * half_sqrt_pi * std::exp(y * y);
  }
  return static_cast<double>(std::copysign(y, static_cast<long double>(x)));
}

// These compute Python's a // b and a % b, except that a // 0 is a / 0 for floats, and that both
// are 0 for integers if b is 0.
double FloorQuotient(double a, double b) {
  if (b == 0) return a / b;
  const double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  return std::floor(quotient) + (quotient - std::floor(quotient) > 0.5 ? 1 : 0);
}
double Modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}
int64_t FloorQuotient(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return WrappingSub(0, a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}
int64_t Modulo(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0;
  return a % b != 0 && (a < 0) != (b < 0) ? a % b + b : a % b;
}

double LogAddExp(double a, double b) {
  if (a == b) return a + std::log(2.0);
  return LargerOrNan(a, b) + std::log1p(std::exp(-std::fabs(a - b)));
}

double NextAfter(DType dtype, double a, double b) {
  if (dtype == DType::kFloat64) return std::nextafter(a, b);
  if (std::isnan(a) || std::isnan(b)) return std::nan("");
  if (a == b) return b;
  const double ulp = UlpOf(dtype, std::isinf(a) ? 0 : a), magnitude = std::fabs(a);
  if (a == 0) return std::copysign(ulp, b);
  if ((a < b) == (a > 0)) return RoundTo(dtype, a + std::copysign(ulp, a));
  if (std::isinf(a)) return std::copysign(LargestOf(dtype), a);
  // Below a power of two, values are half as far apart.
  const double half_down = magnitude - ulp / 2;
  return std::copysign(RoundTo(dtype, half_down) == half_down ? half_down : magnitude - ulp, a);
}

// Shifts by any width. The value may have fewer bits: WrapTo() keeps the low bits of the result.
int64_t ShiftedLeft(int64_t a, int64_t count) {
  return count < 0 || count > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << count);
}
int64_t ShiftedRight(int64_t a, int64_t count) {
  return a >> (count < 0 || count > 63 ? 63 : count);
}

// Computes in long double, because erfc multiplies the error of its argument.
double Gelu(double x) {
  const auto wide = static_cast<long double>(x);
  return static_cast<double>(0.5L * wide * std::erfc(-wide * std::sqrt(0.5L)));
}

// The math libraries guarantee up to 4 ulps of float32. Ops that use several
// functions of these libraries have a few more.
const UnaryCase kUnary[] = {
    {"neg", [](double x) { return -x; }, [](int64_t x) { return WrappingSub(0, x); }},
    {.op = "abs",
     .real = [](double x) { return std::fabs(x); },
     .whole = [](int64_t x) { return x < 0 ? WrappingSub(0, x) : x; },
     .of_uint64 = [](uint64_t x) { return x; }},
    {.op = "relu",
     .real = [](double x) { return x < 0 ? 0.0 : x; },
     .whole = [](int64_t x) { return std::max<int64_t>(x, 0); },
     .any_zero_sign = true,
     .of_uint64 = [](uint64_t x) { return x; }},
    {.op = "sign",
     .real = Sign,
     .whole = [](int64_t x) { return int64_t{x > 0} - int64_t{x < 0}; },
     .of_uint64 = [](uint64_t x) { return uint64_t{x > 0}; }},
    {.op = "conj", .real = [](double x) { return x; }, .whole = Same, .of_bool = true},
    {.op = "floor", .real = [](double x) { return std::floor(x); }, .whole = Same, .of_bool = true},
    {.op = "ceil", .real = [](double x) { return std::ceil(x); }, .whole = Same, .of_bool = true},
    {.op = "trunc", .real = [](double x) { return std::trunc(x); }, .whole = Same, .of_bool = true},
    {.op = "round",
     .real = [](double x) { return std::nearbyint(x); },
     .whole = Same,
     .of_bool = true},
    {"exp", [](double x) { return std::exp(x); }, nullptr, 4},
    {"expm1", [](double x) { return std::expm1(x); }, nullptr, 4},
    {"sin", [](double x) { return std::sin(x); }, nullptr, 4},
    {"cos", [](double x) { return std::cos(x); }, nullptr, 4},
    {"tan", [](double x) { return std::tan(x); }, nullptr, 4},
    {.op = "asin", .real = [](double x) { return std::asin(x); }, .ulps = 4, .fill = Fill::kUnit},
    {.op = "acos", .real = [](double x) { return std::acos(x); }, .ulps = 4, .fill = Fill::kUnit},
    {"atan", [](double x) { return std::atan(x); }, nullptr, 4},
    {"sinh", [](double x) { return std::sinh(x); }, nullptr, 4},
    {"cosh", [](double x) { return std::cosh(x); }, nullptr, 4},
    {"asinh", [](double x) { return std::asinh(x); }, nullptr, 4},
    {.op = "acosh",
     .real = [](double x) { return std::acosh(x); },
     .ulps = 4,
     .fill = Fill::kPositive},
    {.op = "atanh", .real = [](double x) { return std::atanh(x); }, .ulps = 4, .fill = Fill::kUnit},
    {"erf", [](double x) { return std::erf(x); }, nullptr, 4},
    {"erfc", [](double x) { return std::erfc(x); }, nullptr, 4},
    {.op = "erfinv", .real = ErfInverse, .ulps = 4, .fill = Fill::kUnit},
    {.op = "log2",
     .real = [](double x) { return std::log2(x); },
     .ulps = 4,
     .fill = Fill::kPositive},
    {.op = "log10",
     .real = [](double x) { return std::log10(x); },
     .ulps = 4,
     .fill = Fill::kPositive},
    {.op = "log", .real = [](double x) { return std::log(x); }, .ulps = 4, .fill = Fill::kPositive},
    {.op = "log1p",
     .real = [](double x) { return std::log1p(x); },
     .ulps = 4,
     .fill = Fill::kPositive},
    {.op = "sqrt", .real = [](double x) { return std::sqrt(x); }, .fill = Fill::kPositive},
    {.op = "rsqrt",
     .real = [](double x) { return 1 / std::sqrt(x); },
     .ulps = 2,
     .fill = Fill::kPositive},
    {"tanh", [](double x) { return std::tanh(x); }, nullptr, 6},
    {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, nullptr, 6},
    {.op = "silu",
     .real = [](double x) { return x / (1 + std::exp(-x)); },
     .ulps = 6,
     .floating_only = true},
    {.op = "gelu", .real = Gelu, .ulps = 6, .floating_only = true},
};

// Most results are rounded once. For pow, the libraries guarantee only 4 ulps or more. A quotient
// that isn't representable is rounded twice.
const ArithmeticCase kArithmetic[] = {
    {"add", [](double a, double b) { return a + b; }, WrappingAdd, Larger},
    {"sub", [](double a, double b) { return a - b; }, WrappingSub},
    {"mul", [](double a, double b) { return a * b; }, WrappingMul, Smaller},
    {"div", [](double a, double b) { return a / b; }, nullptr},
    {.op = "pow",
     .real = [](double a, double b) { return std::pow(a, b); },
     .whole = IntegerPower,
     .ulps = 8,
     .of_uint64 = Power},
    {.op = "maximum",
     .real = LargerOrNan,
     .whole = Larger,
     .of_bools = Larger,
     .any_zero_sign = true,
     .of_uint64 = LargerUnsigned},
    {.op = "minimum",
     .real = SmallerOrNan,
     .whole = Smaller,
     .of_bools = Smaller,
     .any_zero_sign = true,
     .of_uint64 = SmallerUnsigned},
    {.op = "floor_divide",
     .real = FloorQuotient,
     .whole = FloorQuotient,
     .ulps = 1,
     .of_uint64 = [](uint64_t a, uint64_t b) { return b == 0 ? 0 : a / b; }},
    {.op = "remainder",
     .real = Modulo,
     .whole = Modulo,
     .ulps = 1,
     .of_uint64 = [](uint64_t a, uint64_t b) { return b == 0 ? 0 : a % b; }},
    {"atan2", [](double a, double b) { return std::atan2(a, b); }, nullptr, nullptr, 4},
    {.op = "hypot",
     .real = [](double a, double b) { return std::hypot(a, b); },
     .ulps = 4,
     .floating_only = true},
    {"copysign", [](double a, double b) { return std::copysign(a, b); }, nullptr},
    {.op = "logaddexp", .real = LogAddExp, .ulps = 4, .epsilons = 4, .floating_only = true},
    {.op = "nextafter", .floating_only = true, .of_dtype = NextAfter},
    {"bitwise_and", nullptr, [](int64_t a, int64_t b) { return a & b; }, Smaller},
    {"bitwise_or", nullptr, [](int64_t a, int64_t b) { return a | b; }, Larger},
    {"bitwise_xor", nullptr, [](int64_t a, int64_t b) { return a ^ b; },
     [](int64_t a, int64_t b) { return a ^ b; }},
    {"shift_left", nullptr, ShiftedLeft},
    {.op = "shift_right",
     .whole = ShiftedRight,
     .of_uint64 = [](uint64_t a, uint64_t count) { return count > 63 ? 0 : a >> count; }},
};

template <typename T>
struct Relations {
  static bool Eq(T a, T b) { return a == b; }
  static bool Ne(T a, T b) { return a != b; }
  static bool Lt(T a, T b) { return a < b; }
  static bool Le(T a, T b) { return a <= b; }
  static bool Gt(T a, T b) { return a > b; }
  static bool Ge(T a, T b) { return a >= b; }
};
using RealRelations = Relations<double>;
using WholeRelations = Relations<int64_t>;
using UnsignedRelations = Relations<uint64_t>;

const ComparisonCase kComparisons[] = {
    {"eq", RealRelations::Eq, WholeRelations::Eq, UnsignedRelations::Eq},
    {"ne", RealRelations::Ne, WholeRelations::Ne, UnsignedRelations::Ne},
    {"lt", RealRelations::Lt, WholeRelations::Lt, UnsignedRelations::Lt},
    {"le", RealRelations::Le, WholeRelations::Le, UnsignedRelations::Le},
    {"gt", RealRelations::Gt, WholeRelations::Gt, UnsignedRelations::Gt},
    {"ge", RealRelations::Ge, WholeRelations::Ge, UnsignedRelations::Ge},
};

}  // namespace

absl::Span<const UnaryCase> UnaryCases() { return kUnary; }
bool ArithmeticCase::Accepts(DType dtype) const {
  if (IsComplex(dtype)) return false;
  if (IsFloating(dtype)) return real != nullptr || of_dtype != nullptr;
  if (whole == nullptr) return !floating_only;
  return !IsBool(dtype) || of_bools != nullptr;
}

absl::Span<const ArithmeticCase> ArithmeticCases() { return kArithmetic; }
absl::Span<const ComparisonCase> ComparisonCases() { return kComparisons; }

// Computes in long double, because exp multiplies the error of its argument.
double GeluByTanh(double x) {
  const auto wide = static_cast<long double>(x);
  const long double inner =
      std::sqrt(2.0L / std::acos(-1.0L)) * (wide + 0.044715L * wide * wide * wide);
  return static_cast<double>(wide / (1 + std::exp(-2 * inner)));
}

}  // namespace tensord::conformance
