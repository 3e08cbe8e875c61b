// Elementwise ops of two operands. The dtype is that of PyTorch's promotion.
#include <ATen/ScalarOps.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/remainder.h>

#include <cmath>

#include "kernels.h"
#include "ops.h"

namespace torch_tensord {

at::ScalarType ResultType(std::initializer_list<const at::Tensor*> operands) {
  at::native::ResultTypeState state = {};
  for (const at::Tensor* each : operands)
    state = at::native::update_result_type_state(*each, state);
  return at::native::result_type(state);
}

void ResizeBroadcast(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  if (out.sizes().equals(a.sizes()) && (b.dim() == 0 || a.sizes().equals(b.sizes()))) return;
  const c10::DimVector sizes = at::infer_size_dimvector(a.sizes(), b.sizes());
  TORCH_CHECK(out.sizes().equals(sizes) || !(out.is_same(a) || out.is_same(b)),
              "output with shape ", out.sizes(), " doesn't match the broadcast shape ", sizes);
  Resize(out, sizes);
}

at::Tensor& BinaryInto(ServerOp& op, const at::Tensor& a, const at::Tensor& b,
                       const at::Tensor& out, at::ScalarType dtype) {
  ResizeBroadcast(out, a, b);
  return OpInto(op, out, {&a, &b}, dtype);
}

Value PowerOf(const Value& x, const at::Scalar& exponent) {
  if (exponent.equal(2)) return Push(server_op<"mul">, {x, x});
  if (at::isFloatingType(x->dtype()) && x->dtype() != at::kHalf) {
    // For -0 and -inf, sqrt and rsqrt differ from pow. PyTorch uses them, except for float16.
    if (exponent.equal(0.5)) return Push(server_op<"sqrt">, {x});
    if (exponent.equal(-0.5)) return Push(server_op<"rsqrt">, {x});
  }
  return Push(server_op<"pow">, {x, In(exponent, x->dtype())});
}

namespace {

enum Rule { kFloat, kSame };

// Refuses to divide integers by the number 0, as PyTorch does on the CPU.
void CheckDivisor(const char* name, const at::Tensor& a, const at::Tensor& b,
                  at::ScalarType dtype) {
  if (!IsNumber(b) || a.numel() == 0 || !at::isIntegralType(dtype, false)) return;
  TORCH_CHECK(NumberOf(b, dtype).input.number.value.i != 0, "ZeroDivisionError: ", name,
              ": integers can't be divided by 0");
}

template <ServerOp& kOp, Rule kRule>
at::Tensor& BinaryOut(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  const at::ScalarType dtype = ResultType({&a, &b});
  if constexpr (&kOp == &server_op<"remainder"> || &kOp == &server_op<"fmod">)
    CheckDivisor(kOp.name(), a, b, dtype);
  return BinaryInto(kOp, a, b, out, kRule == kFloat ? FloatDType(dtype) : dtype);
}

// Returns the dtype in which a product or quotient is computed. PyTorch doesn't round a number to
// 16 bits.
at::ScalarType ScaledDType(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype) {
  if (ComputeDType(dtype) == dtype) return dtype;
  for (const at::Tensor* each : {&a, &b}) {
    if (IsNumber(*each) && !IsExact(NumberOf(*each, at::kFloat), dtype)) return at::kFloat;
  }
  return dtype;
}

// Computes a product or quotient of `dtype`.
at::Tensor& ScaledInto(ServerOp& op, const at::Tensor& a, const at::Tensor& b, at::Tensor& out,
                       at::ScalarType dtype) {
  const at::ScalarType computed = ScaledDType(a, b, dtype);
  if (computed == dtype || out.scalar_type() == dtype) return BinaryInto(op, a, b, out, computed);
  // Rounds a 16-bit result to `dtype` before the cast to the dtype of `out`.
  ResizeBroadcast(out, a, b);
  Elementwise(op.name(), out, {&a, &b}, computed,
              [&](const Inputs& in) { return Cast(Push(op.get(), op.name(), in), dtype); });
  return out;
}

// a + alpha * b
at::Tensor& AddScaled(ServerOp& op, const at::Tensor& a, const at::Tensor& b,
                      const at::Scalar& alpha, at::Tensor& out) {
  const at::ScalarType dtype = ResultType({&a, &b});
  const bool subtracts = &op == &server_op<"sub">;
  // PyTorch subtracts by adding -alpha times the operand.
  const at::Scalar factor = subtracts ? -alpha : alpha;
  Checked(factor, dtype);
  if (alpha.equal(1)) {
    return BinaryInto(dtype == at::kBool && !subtracts ? server_op<"bitwise_or"> : op, a, b, out,
                      dtype);
  }
  ResizeBroadcast(out, a, b);
  if (dtype == at::kBool) {
    const at::Tensor none = c10::scalar_to_tensor(false);
    return OpInto(server_op<"bitwise_or">, out, {&a, alpha.toBool() ? &b : &none}, dtype);
  }
  if (!IsNumber(b)) {
    return OpInto(server_op<"add_scaled">, out, {&a, &b}, dtype, In(factor, ComputeDType(dtype)));
  }
  // PyTorch doesn't round the product of two numbers to 16 bits.
  Elementwise(op.name(), out, {&a, &b}, ComputeDType(dtype), [&](const Inputs& in) {
    const In& second = in[1];
    const at::Scalar scaled =
        at::isFloatingType(dtype)
            ? at::Scalar(second.input.number.value.f * factor.toDouble())
            : at::Scalar(static_cast<int64_t>(second.input.number.value.u *
                                              static_cast<uint64_t>(factor.toLong())));
    return Push(server_op<"add">, {in[0], In(scaled, second.dtype())});
  });
  return out;
}

at::Tensor& AddOut(const at::Tensor& a, const at::Tensor& b, const at::Scalar& alpha,
                   at::Tensor& out) {
  return AddScaled(server_op<"add">, a, b, alpha, out);
}
at::Tensor& SubOut(const at::Tensor& a, const at::Tensor& b, const at::Scalar& alpha,
                   at::Tensor& out) {
  return AddScaled(server_op<"sub">, a, b, alpha, out);
}
at::Tensor& MulOut(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  const at::ScalarType dtype = ResultType({&a, &b});
  return ScaledInto(dtype == at::kBool ? server_op<"bitwise_and"> : server_op<"mul">, a, b, out,
                    dtype);
}
at::Tensor& DivOut(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  return ScaledInto(server_op<"div">, a, b, out, FloatDType(ResultType({&a, &b})));
}
at::Tensor& DivModeOut(const at::Tensor& a, const at::Tensor& b,
                       std::optional<c10::string_view> mode, at::Tensor& out) {
  if (!mode.has_value()) return DivOut(a, b, out);
  const at::ScalarType dtype = ResultType({&a, &b});
  CheckDivisor("div", a, b, dtype);
  if (*mode == "floor") return BinaryInto(server_op<"floor_divide">, a, b, out, dtype);
  ResizeBroadcast(out, a, b);
  // PyTorch rounds a quotient of 16 bits before it drops the fraction. If the divisor is a number,
  // PyTorch doesn't round.
  const bool rounds = at::isFloatingType(dtype) && b.numel() != 1;
  return OpInto(server_op<"trunc_divide">, out, {&a, &b}, rounds ? dtype : ComputeDType(dtype));
}
at::Tensor& FloorDivideOut(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  const at::ScalarType dtype = ResultType({&a, &b});
  CheckDivisor("floor_divide", a, b, dtype);
  return BinaryInto(server_op<"floor_divide">, a, b, out, dtype);
}
at::Tensor FloorDivide(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor& ours = IsOurs(a) ? a : b;
  at::Tensor out = MakeElementwise({&a, &b}, ResultType({&a, &b}), ours.device().index());
  return FloorDivideOut(a, b, out);
}
at::Tensor& FloorDivideInPlace(at::Tensor& self, const at::Tensor& b) {
  CheckResultCast(ResultType({&self, &b}), self);
  return FloorDivideOut(self, b, self);
}

at::Tensor RemainderOfNumber(const at::Scalar& number, const at::Tensor& other) {
  const at::Tensor dividend = c10::scalar_to_tensor(number);
  dividend.unsafeGetTensorImpl()->set_wrapped_number(true);
  return at::remainder(dividend, other);
}

template <typename Count>
at::Tensor ShiftLeft(const at::Tensor& self, const Count& count) {
  return self.bitwise_left_shift(count);
}
template <typename Count>
at::Tensor ShiftRight(const at::Tensor& self, const Count& count) {
  return self.bitwise_right_shift(count);
}
template <typename Count>
at::Tensor& ShiftLeftInPlace(at::Tensor& self, const Count& count) {
  return self.bitwise_left_shift_(count);
}
template <typename Count>
at::Tensor& ShiftRightInPlace(at::Tensor& self, const Count& count) {
  return self.bitwise_right_shift_(count);
}

template <ServerOp& kOp>
at::Tensor& CompareOut(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  return BinaryInto(kOp, a, b, out, ResultType({&a, &b}));
}
at::Tensor WrappedNumber(const at::Scalar& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}
template <ServerOp& kOp>
at::Tensor& CompareNumberOut(const at::Tensor& a, const at::Scalar& b, at::Tensor& out) {
  return CompareOut<kOp>(a, WrappedNumber(b), out);
}

at::Tensor& PowNumberOut(const at::Tensor& base, const at::Scalar& exponent, at::Tensor& out) {
  const at::Tensor wrapped = WrappedNumber(exponent);
  const at::ScalarType dtype = ResultType({&base, &wrapped});
  if (dtype != at::kFloat) Checked(exponent, dtype);
  TORCH_CHECK(!at::isIntegralType(dtype, true) || exponent.toLong() >= 0,
              "Integers to negative integer powers are not allowed.");
  if (dtype == at::kBool) {
    ResizeBroadcast(out, base, wrapped);
    return exponent.toBool() ? out.copy_(base) : out.fill_(true);
  }
  if (exponent.equal(2) || exponent.equal(0.5) || exponent.equal(-0.5)) {
    ResizeBroadcast(out, base, wrapped);
    Elementwise("pow", out, {&base}, dtype,
                [&exponent](const Inputs& in) { return PowerOf(Own(in[0]), exponent); });
    return out;
  }
  return BinaryInto(server_op<"pow">, base, wrapped, out, dtype);
}
at::Tensor& PowOfNumberOut(const at::Scalar& base, const at::Tensor& exponent, at::Tensor& out) {
  const at::Tensor wrapped = WrappedNumber(base);
  return BinaryInto(server_op<"pow">, wrapped, exponent, out, ResultType({&wrapped, &exponent}));
}

template <ServerOp& kOp>
at::Tensor Logical(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor out = MakeElementwise({&a, &b}, at::kBool, CommonDevice(kOp.name(), {&a, &b}));
  return BinaryOut<kOp, kSame>(a, b, out);
}

}  // namespace

TENSORD_KERNELS(m) {
#define TENSORD_REGISTER(name, own_name, rule) m.impl(name, BinaryOut<server_op<#own_name>, rule>);
  TENSORD_BINARY_OPS(TENSORD_REGISTER)
#undef TENSORD_REGISTER
#define TENSORD_REGISTER(name)                               \
  m.impl(#name ".Tensor_out", CompareOut<server_op<#name>>); \
  m.impl(#name ".Scalar_out", CompareNumberOut<server_op<#name>>);
  TENSORD_COMPARISON_OPS(TENSORD_REGISTER)
#undef TENSORD_REGISTER
  m.impl("add.out", AddOut);
  m.impl("sub.out", SubOut);
  m.impl("mul.out", MulOut);
  m.impl("div.out", DivOut);
  m.impl("div.out_mode", DivModeOut);
  m.impl("floor_divide", FloorDivide);
  m.impl("floor_divide.out", FloorDivideOut);
  m.impl("floor_divide_.Tensor", FloorDivideInPlace);
  m.impl("remainder.Scalar_Tensor", RemainderOfNumber);
  m.impl("__lshift__.Tensor", ShiftLeft<at::Tensor>);
  m.impl("__lshift__.Scalar", ShiftLeft<at::Scalar>);
  m.impl("__rshift__.Tensor", ShiftRight<at::Tensor>);
  m.impl("__rshift__.Scalar", ShiftRight<at::Scalar>);
  m.impl("__ilshift__.Tensor", ShiftLeftInPlace<at::Tensor>);
  m.impl("__ilshift__.Scalar", ShiftLeftInPlace<at::Scalar>);
  m.impl("__irshift__.Tensor", ShiftRightInPlace<at::Tensor>);
  m.impl("__irshift__.Scalar", ShiftRightInPlace<at::Scalar>);
  m.impl("pow.Tensor_Scalar_out", PowNumberOut);
  m.impl("pow.Scalar_out", PowOfNumberOut);
  m.impl("logical_and", Logical<server_op<"logical_and">>);
  m.impl("logical_or", Logical<server_op<"logical_or">>);
  m.impl("logical_xor", Logical<server_op<"logical_xor">>);
}

}  // namespace torch_tensord
