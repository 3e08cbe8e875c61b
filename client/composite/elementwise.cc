#include "tensord/client/composite/elementwise.h"

#include <cmath>
#include <limits>
#include <variant>

#include "tensord/client/internal/composite.h"
#include "tensord/common/dtype.h"

namespace tensord {
namespace {

using internal::Composite;
using internal::Narrow;
using internal::Widen;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double ToDouble(Scalar scalar) {
  return std::visit([](auto value) { return static_cast<double>(value); }, scalar.value());
}

// Returns value x. A product with 1 needs no op.
Tensor Times(const Tensor& x, Scalar value) { return ToDouble(value) == 1 ? x : Mul(x, value); }

Tensor Truth(const Tensor& x) { return x.dtype() == DType::kBool ? x : Ne(x, false); }

}  // namespace

Tensor Square(const Tensor& x) { return Composite("square", {x}, Mul(x, x)); }

Tensor Reciprocal(const Tensor& x) { return Composite("reciprocal", {x}, Div(1, x)); }

Tensor Clamp(const Tensor& x, Operand min, Operand max) {
  return Composite("clamp", {x, min, max}, Minimum(Maximum(x, min), max));
}

Tensor IsNan(const Tensor& x) { return Composite("isnan", {x}, Ne(x, x)); }

Tensor IsInf(const Tensor& x) {
  return Composite("isinf", {x}, IsFloating(x.dtype()) ? Eq(Abs(x), kInfinity) : Ne(x, x));
}

Tensor IsFinite(const Tensor& x) {
  return Composite("isfinite", {x}, IsFloating(x.dtype()) ? Lt(Abs(x), kInfinity) : Eq(x, x));
}

Tensor SignBit(const Tensor& x) { return Composite("signbit", {x}, Lt(Copysign(1, x), 0)); }

Tensor LogicalAnd(const Tensor& a, const Tensor& b) {
  return Composite("logical_and", {a, b}, BitwiseAnd(Truth(a), Truth(b)));
}

Tensor LogicalOr(const Tensor& a, const Tensor& b) {
  return Composite("logical_or", {a, b}, BitwiseOr(Truth(a), Truth(b)));
}

Tensor LogicalXor(const Tensor& a, const Tensor& b) {
  return Composite("logical_xor", {a, b}, BitwiseXor(Truth(a), Truth(b)));
}

Tensor LogicalNot(const Tensor& x) { return Composite("logical_not", {x}, Eq(x, false)); }

Tensor BitwiseNot(const Tensor& x) {
  if (IsBool(x.dtype())) return Composite("bitwise_not", {x}, Eq(x, false));
  // If x is neither an integer nor a bool, BitwiseXor fails with the reason. Integers wrap around,
  // signed or not.
  return Composite("bitwise_not", {x}, IsInteger(x.dtype()) ? Sub(Neg(x), 1) : BitwiseXor(x, x));
}

Tensor Lerp(const Tensor& a, const Tensor& b, Operand weight) {
  const Tensor from = Widen(a), to = Widen(b);
  const Tensor difference = to - from;
  if (weight.tensor() == nullptr) {
    const double share = ToDouble(weight.scalar());
    const Tensor result = share < 0.5 ? from + difference * share : to - difference * (1 - share);
    return Composite("lerp", {a, b}, Narrow(result, {&a, &b}));
  }
  const Tensor share = Widen(*weight.tensor());
  const Tensor result =
      Where(Lt(share, 0.5), from + difference * share, to - difference * (1 - share));
  return Composite("lerp", {a, b, weight}, Narrow(result, {&a, &b, weight.tensor()}));
}

Tensor Addcmul(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value) {
  const Tensor result = Widen(x) + Times(Widen(a), value) * Widen(b);
  return Composite("addcmul", {x, a, b}, Narrow(result, {&x, &a, &b}));
}

Tensor Addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value) {
  const Tensor result = Widen(x) + Times(Widen(a), value) / Widen(b);
  return Composite("addcdiv", {x, a, b}, Narrow(result, {&x, &a, &b}));
}

}  // namespace tensord
