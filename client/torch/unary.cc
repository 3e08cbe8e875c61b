// Elementwise ops of one operand.
#include <ATen/CompositeExplicitAutogradNonFunctionalFunctions.h>

#include <cmath>
#include <limits>

#include "hot.h"
#include "ops.h"

namespace torch_tensord {
namespace {

enum Rule { kFloat, kSame };

at::ScalarType DTypeBy(Rule rule, const at::Tensor& self) {
  return rule == kFloat ? FloatDType(self.scalar_type()) : self.scalar_type();
}

template <ServerOp& kOp, Rule kRule>
at::Tensor& UnaryOut(const at::Tensor& self, at::Tensor& out) {
  Resize(out, self.sizes());
  return OpInto(kOp, out, {&self}, DTypeBy(kRule, self));
}

template <ServerOp& kOp>
at::Tensor TruthOf(const at::Tensor& self) {
  at::Tensor out = MakeLike(self, at::kBool);
  return UnaryOut<kOp, kSame>(self, out);
}

at::Tensor& NanToNumOut(const at::Tensor& self, std::optional<double> nan,
                        std::optional<double> posinf, std::optional<double> neginf,
                        at::Tensor& out) {
  if (!at::isFloatingType(self.scalar_type())) return CopyToOut(out, self);
  double largest = std::numeric_limits<double>::max();
  if (self.scalar_type() == at::kFloat) largest = std::numeric_limits<float>::max();
  if (self.scalar_type() == at::kHalf) largest = 65504;
  if (self.scalar_type() == at::kBFloat16) largest = 3.3895313892515355e38;
  // For the op, NaN in place of an infinity means the largest number.
  const auto limit = [](double number, double otherwise) {
    return std::isnan(number) ? otherwise : number;
  };
  const double above = posinf.value_or(largest), below = neginf.value_or(-largest);
  Resize(out, self.sizes());
  Elementwise("nan_to_num", out, {&self}, self.scalar_type(), [&](const Inputs& in) {
    Value made = Push("nan_to_num", {in[0]},
                      {{"nan", nan.value_or(0)},
                       {"posinf", limit(above, largest)},
                       {"neginf", limit(below, -largest)}});
    if (std::isnan(above))
      made = Where(Push(server_op<"isposinf">, {in[0]}), Number(above, made), made);
    if (std::isnan(below))
      made = Where(Push(server_op<"isneginf">, {in[0]}), Number(below, made), made);
    return made;
  });
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
  // PyTorch's own function computes the geometry of the result, and calls the kernel with ".out".
#define TENSORD_REGISTER(name, own_name, rule)                \
  m.impl(#name ".out", UnaryOut<server_op<#own_name>, rule>); \
  m.impl(#name, UnaryFast<server_op<#own_name>, at::compositeexplicitautogradnonfunctional::name>);
  TENSORD_UNARY_OPS(TENSORD_REGISTER)
#undef TENSORD_REGISTER
  m.impl("abs.out", UnaryOut<server_op<"abs">, kSame>);
  m.impl("bitwise_not.out", UnaryOut<server_op<"bitwise_not">, kSame>);
  m.impl("logical_not.out", UnaryOut<server_op<"logical_not">, kSame>);
  m.impl("abs", Unstructured<server_op<"abs">>);
  m.impl("relu", Unstructured<server_op<"relu">>);
  m.impl("relu_", UnstructuredInPlace<server_op<"relu">>);
  m.impl("logical_not", TruthOf<server_op<"logical_not">>);
  m.impl("isnan", TruthOf<server_op<"isnan">>);
  m.impl("nan_to_num.out", NanToNumOut);
}

}  // namespace torch_tensord
