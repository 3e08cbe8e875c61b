// Elementwise ops of one operand.
#include <cmath>
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
    if (std::isnan(above)) made = Where(Push(op::isposinf, {in[0]}), Number(above, made), made);
    if (std::isnan(below)) made = Where(Push(op::isneginf, {in[0]}), Number(below, made), made);
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
#define TENSORD_REGISTER(name, server_op, rule) m.impl(#name ".out", UnaryOut<op::server_op, rule>);
  TENSORD_UNARY_OPS(TENSORD_REGISTER)
#undef TENSORD_REGISTER
  m.impl("abs", Unstructured<op::abs>);
  m.impl("relu", Unstructured<op::relu>);
  m.impl("relu_", UnstructuredInPlace<op::relu>);
  m.impl("logical_not", TruthOf<op::logical_not>);
  m.impl("isnan", TruthOf<op::isnan>);
  m.impl("nan_to_num.out", NanToNumOut);
}

}  // namespace torch_tensord
