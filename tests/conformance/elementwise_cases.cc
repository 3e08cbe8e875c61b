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

int64_t IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    return 0;
  }
  int64_t result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result = WrappingMul(result, base);
    base = WrappingMul(base, base);
  }
  return result;
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

// The math libraries guarantee up to 4 ulps of float32. Ops that use several
// functions of these libraries have a few more.
const UnaryCase kUnary[] = {
    {"neg", [](double x) { return -x; }, [](int64_t x) { return WrappingSub(0, x); }},
    {"abs", [](double x) { return std::fabs(x); },
     [](int64_t x) { return x < 0 ? WrappingSub(0, x) : x; }},
    {.op = "relu",
     .real = [](double x) { return x < 0 ? 0.0 : x; },
     .whole = [](int64_t x) { return std::max<int64_t>(x, 0); },
     .any_zero_sign = true},
    {"exp", [](double x) { return std::exp(x); }, nullptr, 4},
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
    {.op = "gelu",
     .real = [](double x) { return 0.5 * x * std::erfc(-x * std::sqrt(0.5)); },
     .ulps = 4,
     .epsilons = 4,
     .floating_only = true},
};

// The results are rounded once. The exception is pow, for which the libraries guarantee only 4 ulps
// or more.
const ArithmeticCase kArithmetic[] = {
    {"add", [](double a, double b) { return a + b; }, WrappingAdd, Larger},
    {"sub", [](double a, double b) { return a - b; }, WrappingSub},
    {"mul", [](double a, double b) { return a * b; }, WrappingMul, Smaller},
    {"div", [](double a, double b) { return a / b; }, nullptr},
    {"pow", [](double a, double b) { return std::pow(a, b); }, IntegerPower, nullptr, 8},
    {"maximum", LargerOrNan, Larger, Larger, 0, true},
    {"minimum", SmallerOrNan, Smaller, Smaller, 0, true},
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
using Real = Relations<double>;
using Whole = Relations<int64_t>;

const ComparisonCase kComparisons[] = {
    {"eq", Real::Eq, Whole::Eq}, {"ne", Real::Ne, Whole::Ne}, {"lt", Real::Lt, Whole::Lt},
    {"le", Real::Le, Whole::Le}, {"gt", Real::Gt, Whole::Gt}, {"ge", Real::Ge, Whole::Ge},
};

}  // namespace

absl::Span<const UnaryCase> UnaryCases() { return kUnary; }
absl::Span<const ArithmeticCase> ArithmeticCases() { return kArithmetic; }
absl::Span<const ComparisonCase> ComparisonCases() { return kComparisons; }

double GeluByTanh(double x) {
  const double inner = std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(inner));
}

}  // namespace tensord::conformance
