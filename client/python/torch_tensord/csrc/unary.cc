// Elementwise ops of one operand.
#include <limits>

#include "kernels.h"
#include "ops.h"

namespace torch_tensord {
namespace {

enum Rule { kFloat, kSame };

at::ScalarType DTypeBy(Rule rule, const at::Tensor& self) {
  return rule == kFloat ? FloatDType(self.scalar_type()) : self.scalar_type();
}

template <ServerOp& kOp, Rule kRule>
at::Tensor& UnaryOut(const at::Tensor& self, at::Tensor& out) {
  const at::ScalarType dtype = DTypeBy(kRule, self);
  if (TryInPlace(kOp, out, self, nullptr, dtype)) return out;
  Resize(out, self.sizes());
  Elementwise(kOp.name(), out, {&self}, dtype,
              [](const Inputs& in) { return Push(kOp.get(), kOp.name(), in); });
  return out;
}

// ---- compositions. Each computes from a value in the dtype of the rule.

Value Reciprocal(const Value& x) { return Push(op::div, {Number(1, x), x}); }
Value Exp2(const Value& x) { return Push(op::pow, {Number(2, x), x}); }
Value Frac(const Value& x) { return Sub(x, Push(op::trunc, {x})); }
Value SignOf(const Value& x) {
  if (x->dtype() == at::kBool) return x;
  if (!at::isFloatingType(x->dtype())) return Push(op::sign, {x});
  // PyTorch's sign of NaN is 0.
  return Sub(Cast(Push(op::gt, {x, Number(0, x)}), x->dtype()),
             Cast(Push(op::lt, {x, Number(0, x)}), x->dtype()));
}
Value Signbit(const Value& x) {
  if (!at::isFloatingType(x->dtype())) return Push(op::lt, {x, Number(0, x)});
  return Push(op::lt, {Push(op::copysign, {Number(1, x), x}), Number(0, x)});
}
Value IsInfinity(const Value& x, double infinity) {
  if (!at::isFloatingType(x->dtype())) return Push(op::ne, {x, x});
  return Push(op::eq, {x, Number(infinity, x)});
}
Value IsPosInf(const Value& x) { return IsInfinity(x, std::numeric_limits<double>::infinity()); }
Value IsNegInf(const Value& x) { return IsInfinity(x, -std::numeric_limits<double>::infinity()); }
Value BitwiseNot(const Value& x) {
  if (x->dtype() == at::kBool) return Push(op::bitwise_xor, {x, Number(true, x)});
  if (x->dtype() == at::kByte) return Push(op::bitwise_xor, {x, Number(255, x)});
  return Push(op::bitwise_xor, {x, Number(-1, x)});
}
Value LogicalNot(const Value& x) { return Push(op::eq, {x, Number(0, x)}); }
Value IsNan(const Value& x) { return Push(op::ne, {x, x}); }

// Computes in float32 for the 16-bit dtypes, so that the result is rounded once.
template <Value (*kFunction)(const Value&), Rule kRule>
at::Tensor& ComposedOut(const at::Tensor& self, at::Tensor& out) {
  Resize(out, self.sizes());
  const at::ScalarType dtype = DTypeBy(kRule, self), computed = ComputeDType(dtype);
  CommonDevice("", {&self});
  Elementwise("", out, {&self}, computed, [&](const Inputs& in) {
    const Value made = kFunction(Own(in[0]));
    return made->dtype() == computed ? Cast(made, dtype) : made;
  });
  return out;
}

template <Value (*kFunction)(const Value&)>
at::Tensor TruthOf(const at::Tensor& self) {
  at::Tensor out = MakeLike(self, at::kBool);
  return ComposedOut<kFunction, kSame>(self, out);
}

at::Tensor& NanToNumOut(const at::Tensor& self, std::optional<double> nan,
                        std::optional<double> posinf, std::optional<double> neginf,
                        at::Tensor& out) {
  Resize(out, self.sizes());
  Value x = Read(self);
  if (at::isFloatingType(self.scalar_type())) {
    double largest = std::numeric_limits<double>::max();
    if (self.scalar_type() == at::kFloat) largest = std::numeric_limits<float>::max();
    if (self.scalar_type() == at::kHalf) largest = 65504;
    if (self.scalar_type() == at::kBFloat16) largest = 3.3895313892515355e38;
    const Value inf = IsPosInf(x), negative = IsNegInf(x);
    x = Where(IsNan(x), Number(nan.value_or(0), x), x);
    x = Where(inf, Number(posinf.value_or(largest), x), x);
    x = Where(negative, Number(neginf.value_or(-largest), x), x);
  }
  Write(out, x);
  return out;
}

template <ServerOp& kOp>
at::Tensor Unstructured(const at::Tensor& self) {
  if (C10_LIKELY(IsRowMajor(self))) return MakeTensor(Push(kOp, {Read(self)}), DeviceOf(self));
  at::Tensor out = MakeLike(self);
  return UnaryOut<kOp, kSame>(self, out);
}
template <ServerOp& kOp>
at::Tensor& UnstructuredInPlace(at::Tensor& self) {
  return UnaryOut<kOp, kSame>(self, self);
}

}  // namespace

TENSORD_KERNELS(m) {
#define TENSORD_REGISTER(name, server_op, rule) m.impl(#name ".out", UnaryOut<op::server_op, rule>);
  TENSORD_UNARY_OPS(TENSORD_REGISTER)
#undef TENSORD_REGISTER
  m.impl("abs", Unstructured<op::abs>);
  m.impl("relu", Unstructured<op::relu>);
  m.impl("relu_", UnstructuredInPlace<op::relu>);
  m.impl("reciprocal.out", ComposedOut<Reciprocal, kFloat>);
  m.impl("exp2.out", ComposedOut<Exp2, kFloat>);
  m.impl("frac.out", ComposedOut<Frac, kSame>);
  m.impl("sign.out", ComposedOut<SignOf, kSame>);
  m.impl("sgn.out", ComposedOut<SignOf, kSame>);
  m.impl("signbit.out", ComposedOut<Signbit, kSame>);
  m.impl("isposinf.out", ComposedOut<IsPosInf, kSame>);
  m.impl("isneginf.out", ComposedOut<IsNegInf, kSame>);
  m.impl("bitwise_not.out", ComposedOut<BitwiseNot, kSame>);
  m.impl("logical_not.out", ComposedOut<LogicalNot, kSame>);
  m.impl("logical_not", TruthOf<LogicalNot>);
  m.impl("isnan", TruthOf<IsNan>);
  m.impl("nan_to_num.out", NanToNumOut);
}

}  // namespace torch_tensord
