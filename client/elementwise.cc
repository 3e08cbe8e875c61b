#include "tensord/client/elementwise.h"

#include <cmath>

#include "tensord/client/internal/enqueue.h"
#include "tensord/client/internal/operands.h"

namespace tensord {
namespace {

using internal::RunOperands;

constexpr NumberInputs kFactor = {.first = 0, .is_factor = true};

Tensor Compose(absl::string_view op, const Tensor& x, const Attributes& attrs = {}) {
  const Tensor* inputs[] = {&x};
  return internal::Enqueue(op, inputs, attrs);
}

}  // namespace

Tensor Square(const Tensor& x) { return Compose("square", x); }
Tensor Reciprocal(const Tensor& x) { return Compose("reciprocal", x); }
Tensor Exp2(const Tensor& x) { return Compose("exp2", x); }
Tensor Frac(const Tensor& x) { return Compose("frac", x); }
Tensor Sgn(const Tensor& x) { return Compose("sgn", x); }
Tensor IsNan(const Tensor& x) { return Compose("isnan", x); }
Tensor IsInf(const Tensor& x) { return Compose("isinf", x); }
Tensor IsPosInf(const Tensor& x) { return Compose("isposinf", x); }
Tensor IsNegInf(const Tensor& x) { return Compose("isneginf", x); }
Tensor IsFinite(const Tensor& x) { return Compose("isfinite", x); }
Tensor SignBit(const Tensor& x) { return Compose("signbit", x); }
Tensor NanToNum(const Tensor& x, const NanToNumOptions& options) {
  // An attribute of NaN would never equal that of a cached op.
  Attributes attrs = {{"nan", options.nan}};
  if (!std::isnan(options.posinf)) attrs.Set("posinf", options.posinf);
  if (!std::isnan(options.neginf)) attrs.Set("neginf", options.neginf);
  return Compose("nan_to_num", x, attrs);
}
Tensor LogicalAnd(Operand a, Operand b) { return RunOperands("logical_and", {a, b}); }
Tensor LogicalOr(Operand a, Operand b) { return RunOperands("logical_or", {a, b}); }
Tensor LogicalXor(Operand a, Operand b) { return RunOperands("logical_xor", {a, b}); }
Tensor LogicalNot(const Tensor& x) { return Compose("logical_not", x); }
Tensor BitwiseNot(const Tensor& x) { return Compose("bitwise_not", x); }
Tensor Fmod(Operand a, Operand b) { return RunOperands("fmod", {a, b}); }
Tensor TruncDivide(Operand a, Operand b) { return RunOperands("trunc_divide", {a, b}); }
Tensor Fmax(Operand a, Operand b) { return RunOperands("fmax", {a, b}); }
Tensor Fmin(Operand a, Operand b) { return RunOperands("fmin", {a, b}); }
Tensor Clamp(const Tensor& x, Operand min, Operand max) {
  return RunOperands("clamp", {x, min, max});
}
Tensor Lerp(const Tensor& a, const Tensor& b, Operand weight) {
  return RunOperands("lerp", {a, b, weight}, 0, kFactor);
}
Tensor AddScaled(const Tensor& x, const Tensor& y, Operand alpha) {
  return RunOperands("add_scaled", {x, y, alpha}, 0, kFactor);
}
Tensor Addcmul(const Tensor& x, const Tensor& a, const Tensor& b, Operand value) {
  return RunOperands("addcmul", {x, a, b, value}, 0, kFactor);
}
Tensor Addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, Operand value) {
  return RunOperands("addcdiv", {x, a, b, value}, 0, kFactor);
}

}  // namespace tensord
