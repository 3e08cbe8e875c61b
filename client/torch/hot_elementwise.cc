// Fast paths of elementwise ops, and of reductions with two results. hot.cc explains them.
#include <ATen/CompositeExplicitAutogradNonFunctionalFunctions.h>

#include <algorithm>
#include <cmath>

#include "hot.h"

namespace torch_tensord {
namespace {

namespace slow = at::compositeexplicitautogradnonfunctional;

template <ServerOp& kOp, at::Tensor (*kSlow)(const at::Tensor&, const at::Tensor&)>
at::Tensor FastOrSlow(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor result;
  if (BinaryFast(kOp, a, b, &result)) return result;
  CommonDevice(kOp.name(), {&a, &b});
  return kSlow(a, b);
}
template <ServerOp& kOp, at::Tensor (*kSlow)(const at::Tensor&, const at::Tensor&)>
at::Tensor FastOrSlowFloat(const at::Tensor& a, const at::Tensor& b) {
  if (!at::isFloatingType(a.scalar_type())) {
    CommonDevice(kOp.name(), {&a, &b});
    return kSlow(a, b);
  }
  return FastOrSlow<kOp, kSlow>(a, b);
}

// Returns whether a fast path applies to `x` and a number: the number doesn't change the dtype.
bool Fits(const at::Scalar& number, const at::Tensor& x) {
  if (number.isBoolean() || number.isComplex()) return false;
  return IsPlainFloat(x) ||
         (IsPlain(x) && x.scalar_type() == at::kLong && number.isIntegral(false));
}

template <ServerOp& kOp, at::Tensor (*kSlow)(const at::Tensor&, const at::Scalar&)>
at::Tensor CompareWithNumber(const at::Tensor& x, const at::Scalar& number) {
  if (!Fits(number, x)) return kSlow(x, number);
  return MakeTensor(Push(kOp, {Read(x), In(number, x.scalar_type())}), DeviceOf(x));
}

at::Tensor PowOfTensor(const at::Tensor& x, const at::Scalar& exponent) {
  if (!IsPlainFloat(x) || exponent.isComplex() || exponent.isBoolean())
    return slow::pow(x, exponent);
  const Value base = Read(x);
  if (ComputeDType(x.scalar_type()) != x.scalar_type()) Checked(exponent, x.scalar_type());
  return MakeTensor(PowerOf(base, exponent), DeviceOf(x));
}

at::Tensor ClampToNumbers(const at::Tensor& x, const std::optional<at::Scalar>& low,
                          const std::optional<at::Scalar>& high) {
  const auto is_limit = [](const std::optional<at::Scalar>& number) {
    return !number.has_value() || (!number->isComplex() && !std::isnan(number->toDouble()));
  };
  if (!IsPlainFloat(x) || !is_limit(low) || !is_limit(high) ||
      !(low.has_value() || high.has_value())) {
    return slow::clamp(x, low, high);
  }
  const Value value = Read(x);
  const auto limit = [&](const at::Scalar& number) { return Checked(number, value->dtype()); };
  if (!low.has_value())
    return MakeTensor(Push(server_op<"minimum">, {value, limit(*high)}), DeviceOf(x));
  if (!high.has_value())
    return MakeTensor(Push(server_op<"maximum">, {value, limit(*low)}), DeviceOf(x));
  return MakeTensor(Push(server_op<"clamp">, {value, limit(*low), limit(*high)}), DeviceOf(x));
}

at::Tensor ThresholdBackward(const at::Tensor& gradient, const at::Tensor& x,
                             const at::Scalar& threshold) {
  if (!IsPlainFloat(x) || !IsPlain(gradient) || !AreAlike(gradient, x) || threshold.isComplex())
    return slow::threshold_backward(gradient, x, threshold);
  return MakeTensor(
      Push("threshold_backward", {Read(gradient), Read(x)}, {{"threshold", threshold.toDouble()}}),
      DeviceOf(x));
}

// ---- in place

// Returns whether a fast path applies to an op in place. All operands must be plain, alike, and of
// float32 or float64, and no other operand may share the storage of `self`.
bool AreSeparate(const at::Tensor& self, std::initializer_list<const at::Tensor*> others) {
  const at::ScalarType dtype = self.scalar_type();
  if ((dtype != at::kFloat && dtype != at::kDouble) || !IsPlain(self) || self.numel() == 0)
    return false;
  return std::all_of(others.begin(), others.end(), [&self](const at::Tensor* each) {
    return IsPlain(*each) && AreAlike(*each, self) && CellOf(*each) != CellOf(self);
  });
}

template <ServerOp& kOp, at::Tensor& (*kSlow)(at::Tensor&, const at::Tensor&, const at::Tensor&,
                                              const at::Scalar&)>
at::Tensor& AddProductInPlace(at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                              const at::Scalar& factor) {
  if (!AreSeparate(self, {&a, &b}) || factor.isComplex()) return kSlow(self, a, b, factor);
  const at::ScalarType dtype = self.scalar_type();
  return OpInto(kOp, self, {&self, &a, &b}, dtype, Checked(factor, dtype));
}

at::Tensor& LerpInPlace(at::Tensor& self, const at::Tensor& end, const at::Scalar& weight) {
  if (!AreSeparate(self, {&end}) || weight.isComplex()) return slow::lerp_(self, end, weight);
  const at::ScalarType dtype = self.scalar_type();
  return OpInto(server_op<"lerp">, self, {&self, &end}, dtype, Checked(weight, dtype));
}

// ---- two results

template <const char* const& kName, const char* const& kArgName,
          std::tuple<at::Tensor, at::Tensor> (*kSlow)(const at::Tensor&, int64_t, bool)>
std::tuple<at::Tensor, at::Tensor> ExtremumOfAxis(const at::Tensor& x, int64_t dim, bool keepdims) {
  if (!IsPlainFloat(x) || x.dim() == 0 || x.numel() == 0) return kSlow(x, dim, keepdims);
  const int64_t axes[] = {at::maybe_wrap_dim(dim, x.dim())};
  const Value value = Read(x);
  return {MakeTensor(Reduce(kName, value, axes, keepdims), DeviceOf(x)),
          MakeTensor(Reduce(kArgName, value, axes, keepdims), DeviceOf(x))};
}
constexpr const char* kMaximum = "max";
constexpr const char* kMinimum = "min";
constexpr const char* kArgMaximum = "argmax";
constexpr const char* kArgMinimum = "argmin";

}  // namespace

TENSORD_KERNELS(m) {
#define TENSORD_REGISTER(name)                                       \
  m.impl(#name ".Tensor", FastOrSlow<server_op<#name>, slow::name>); \
  m.impl(#name ".Scalar", CompareWithNumber<server_op<#name>, slow::name>);
  TENSORD_REGISTER(eq)
  TENSORD_REGISTER(ne)
  TENSORD_REGISTER(lt)
  TENSORD_REGISTER(le)
  TENSORD_REGISTER(gt)
  TENSORD_REGISTER(ge)
#undef TENSORD_REGISTER
  m.impl("maximum", FastOrSlow<server_op<"maximum">, slow::maximum>);
  m.impl("minimum", FastOrSlow<server_op<"minimum">, slow::minimum>);
  m.impl("atan2", FastOrSlowFloat<server_op<"atan2">, slow::atan2>);
  m.impl("copysign.Tensor", FastOrSlowFloat<server_op<"copysign">, slow::copysign>);
  m.impl("pow.Tensor_Scalar", PowOfTensor);
  m.impl("clamp", ClampToNumbers);
  m.impl("addcmul_", AddProductInPlace<server_op<"addcmul">, slow::addcmul_>);
  m.impl("addcdiv_", AddProductInPlace<server_op<"addcdiv">, slow::addcdiv_>);
  m.impl("lerp_.Scalar", LerpInPlace);
  m.impl("threshold_backward", ThresholdBackward);
  m.impl("max.dim", ExtremumOfAxis<kMaximum, kArgMaximum, slow::max>);
  m.impl("min.dim", ExtremumOfAxis<kMinimum, kArgMinimum, slow::min>);
}

}  // namespace torch_tensord
