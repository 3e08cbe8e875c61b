#include "tensord/client/composite/elementwise.h"

#include <cmath>
#include <limits>
#include <utility>
#include <variant>

#include "absl/types/span.h"
#include "tensord/common/dtype.h"

namespace tensord {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool Has16Bits(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

Tensor Widen(const Tensor& x) { return Has16Bits(x.dtype()) ? x.To(DType::kFloat32) : x; }

// Converts the result of widened operands to the dtype that the operands have together. If they
// can't be promoted, `result` has an error already.
Tensor Narrow(Tensor result, absl::Span<const Tensor* const> operands) {
  DType dtype = operands[0]->dtype();
  for (const Tensor* operand : operands.subspan(1)) {
    const absl::StatusOr<DType> promoted = PromoteTypes(dtype, operand->dtype());
    if (!promoted.ok()) return result;
    dtype = *promoted;
  }
  return Has16Bits(dtype) ? result.To(dtype) : std::move(result);
}

double ToDouble(Scalar scalar) {
  return std::visit([](auto value) { return static_cast<double>(value); }, scalar.value());
}

// value x. A product with 1 needs no op.
Tensor Times(const Tensor& x, Scalar value) { return ToDouble(value) == 1 ? x : Mul(x, value); }

Tensor Truth(const Tensor& x) { return x.dtype() == DType::kBool ? x : Ne(x, false); }

}  // namespace

Tensor Square(const Tensor& x) { return Mul(x, x); }

Tensor Reciprocal(const Tensor& x) { return Div(1, x); }

Tensor Clamp(const Tensor& x, Operand min, Operand max) { return Minimum(Maximum(x, min), max); }

Tensor IsNan(const Tensor& x) { return Ne(x, x); }

Tensor IsInf(const Tensor& x) { return IsFloating(x.dtype()) ? Eq(Abs(x), kInfinity) : Ne(x, x); }

Tensor IsFinite(const Tensor& x) {
  return IsFloating(x.dtype()) ? Lt(Abs(x), kInfinity) : Eq(x, x);
}

Tensor SignBit(const Tensor& x) { return Lt(Copysign(1, x), 0); }

Tensor LogicalAnd(const Tensor& a, const Tensor& b) { return BitwiseAnd(Truth(a), Truth(b)); }
Tensor LogicalOr(const Tensor& a, const Tensor& b) { return BitwiseOr(Truth(a), Truth(b)); }
Tensor LogicalXor(const Tensor& a, const Tensor& b) { return BitwiseXor(Truth(a), Truth(b)); }
Tensor LogicalNot(const Tensor& x) { return Eq(x, false); }

Tensor BitwiseNot(const Tensor& x) {
  if (IsBool(x.dtype())) return LogicalNot(x);
  if (!IsInteger(x.dtype())) return BitwiseXor(x, x);  // fails with the reason
  return Sub(Neg(x), 1);                               // signed or not, integers wrap
}

Tensor Lerp(const Tensor& a, const Tensor& b, Operand weight) {
  const Tensor from = Widen(a), to = Widen(b);
  const Tensor way = to - from;
  if (weight.tensor() == nullptr) {
    const double share = ToDouble(weight.scalar());
    const Tensor result = share < 0.5 ? from + way * share : to - way * (1 - share);
    return Narrow(result, {&a, &b});
  }
  const Tensor share = Widen(*weight.tensor());
  const Tensor result = Where(Lt(share, 0.5), from + way * share, to - way * (1 - share));
  return Narrow(result, {&a, &b, weight.tensor()});
}

Tensor Addcmul(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value) {
  return Narrow(Widen(x) + Times(Widen(a), value) * Widen(b), {&x, &a, &b});
}

Tensor Addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value) {
  return Narrow(Widen(x) + Times(Widen(a), value) / Widen(b), {&x, &a, &b});
}

Tensor Softplus(const Tensor& x, const SoftplusOptions& options) {
  const Tensor wide = Widen(x);
  const Tensor scaled = Times(wide, options.beta);
  const Tensor curve = Times(Log1p(Exp(scaled)), 1 / options.beta);
  return Narrow(Where(Gt(scaled, options.threshold), wide, curve), {&x});
}

}  // namespace tensord
