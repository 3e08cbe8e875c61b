// Variants of ops whose main form is in another file. Each calls the main form through PyTorch.
#include <ATen/ops/_ctc_loss.h>
#include <ATen/ops/_ctc_loss_backward.h>
#include <ATen/ops/_native_batch_norm_legit.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/binary_cross_entropy.h>
#include <ATen/ops/binary_cross_entropy_backward.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/hardtanh_backward.h>
#include <ATen/ops/huber_loss.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/log_sigmoid_backward.h>
#include <ATen/ops/log_sigmoid_forward.h>
#include <ATen/ops/logit_backward.h>
#include <ATen/ops/max.h>
#include <ATen/ops/min.h>
#include <ATen/ops/mse_loss_backward.h>
#include <ATen/ops/msort.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/nll_loss2d_backward.h>
#include <ATen/ops/nll_loss2d_forward.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/take.h>

#include <cmath>

#include "kernels.h"

namespace torch_tensord {
namespace {

// OutputOf<f>::Run(arguments…, out) computes out = f(arguments…).
template <auto kFunction>
struct OutputOf;
template <typename... Args, at::Tensor (*kFunction)(Args...)>
struct OutputOf<kFunction> {
  static at::Tensor& Run(Args... args, at::Tensor& out) {
    return CopyToOut(out, kFunction(args...));
  }
};
// The same for an op with several results.
template <auto kFunction>
struct OutputsOf;
template <typename... Args, typename... Tensors, std::tuple<Tensors...> (*kFunction)(Args...)>
struct OutputsOf<kFunction> {
  static std::tuple<Tensors&...> Run(Args... args, Tensors&... outputs) {
    const auto made = kFunction(args...);
    const auto targets = std::tie(outputs...);
    Copy(targets, made, std::index_sequence_for<Tensors...>());
    return targets;
  }
  template <typename Targets, typename Made, size_t... I>
  static void Copy(const Targets& targets, const Made& made, std::index_sequence<I...>) {
    (CopyToOut(std::get<I>(targets), std::get<I>(made)), ...);
  }
};

// ---- searches

at::Tensor& CopyPlaces(at::Tensor& out, const at::Tensor& places) {
  TORCH_CHECK(out.scalar_type() == places.scalar_type(),
              "searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or "
              "Long(int64) depending on whether out_int32 flag is True, but we got output tensor's "
              "dtype ",
              out.scalar_type());
  return CopyToOut(out, places);
}
at::Tensor& SearchOut(const at::Tensor& sorted, const at::Tensor& self, bool int32, bool right,
                      std::optional<c10::string_view> side, const std::optional<at::Tensor>& sorter,
                      at::Tensor& out) {
  return CopyPlaces(out, at::searchsorted(sorted, self, int32, right, side, sorter));
}
at::Tensor& SearchNumberOut(const at::Tensor& sorted, const at::Scalar& self, bool int32,
                            bool right, std::optional<c10::string_view> side,
                            const std::optional<at::Tensor>& sorter, at::Tensor& out) {
  return CopyPlaces(out, at::searchsorted(sorted, self, int32, right, side, sorter));
}
at::Tensor& BucketizeOut(const at::Tensor& self, const at::Tensor& boundaries, bool int32,
                         bool right, at::Tensor& out) {
  return CopyPlaces(out, at::bucketize(self, boundaries, int32, right));
}

at::Tensor& NonZeroOut(const at::Tensor& self, at::Tensor& out) {
  const at::Tensor places = at::nonzero(self);
  if (!out.sizes().equals(places.sizes())) {
    Resize(out, places.sizes());
    out.unsafeGetTensorImpl()->set_sizes_and_strides(places.sizes(), places.strides());
  }
  return out.copy_(places);
}

// ---- numbers

bool IsSetTo(const at::Tensor& self, const at::Tensor& other) {
  return at::native::is_set_to(self, other);
}

// start, start + step, … up to and with `end`. For an integer dtype, PyTorch truncates these first.
at::Tensor& RangeOut(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                     at::Tensor& out) {
  TORCH_CHECK(std::isfinite(start.toDouble()) && std::isfinite(end.toDouble()),
              "unsupported range: ", start.toDouble(), " -> ", end.toDouble());
  TORCH_CHECK(std::isfinite(step.toDouble()), "range: step must be finite, but got ", step);
  const bool integers = at::isIntegralType(out.scalar_type(), true);
  const auto convert = [integers](const at::Scalar& number) {
    return integers ? at::Scalar(number.toLong()) : at::Scalar(number.toDouble());
  };
  const at::Scalar first = convert(start), last = convert(end), width = convert(step);
  const double span = last.toDouble() - first.toDouble(), direction = width.toDouble();
  TORCH_CHECK(direction != 0, "step must be nonzero");
  TORCH_CHECK(direction > 0 ? span >= 0 : span <= 0,
              "upper bound and lower bound inconsistent with step sign");
  const int64_t size = integers ? (last.toLong() - first.toLong()) / width.toLong() + 1
                                : static_cast<int64_t>(span / direction + 1);
  if (out.numel() != size) Resize(out, {size});  // PyTorch keeps another shape of as many elements
  const Value places = Arange(DeviceOf(out), size);
  const Value made = Add(Mul(integers ? places : Cast(places, at::kDouble), width), first);
  Write(out, Reshape(made, out.sizes()));
  return out;
}

// Splits x into mantissa · 2^exponent with 0.5 <= |mantissa| < 1, by the bits of the number.
std::tuple<at::Tensor&, at::Tensor&> FrexpOut(const at::Tensor& self, at::Tensor& mantissa,
                                              at::Tensor& exponent) {
  TORCH_CHECK(at::isFloatingType(self.scalar_type()),
              "torch.frexp() only supports floating-point dtypes");
  TORCH_CHECK(mantissa.scalar_type() == self.scalar_type(),
              "torch.frexp() expects mantissa to have dtype ", self.scalar_type(), " but got ",
              mantissa.scalar_type());
  TORCH_CHECK(exponent.scalar_type() == at::kInt,
              "torch.frexp() expects exponent to have int dtype but got ", exponent.scalar_type());
  const bool wide = self.scalar_type() == at::kDouble;
  const at::ScalarType bits_type = wide ? at::kLong : at::kInt;
  const int64_t digits = wide ? 52 : 23, mask = wide ? 0x7ff : 0xff, bias = mask / 2;
  const Value x = Cast(Read(self), wide ? at::kDouble : at::kFloat);
  // A subnormal number is scaled first.
  const double smallest = std::ldexp(1.0, static_cast<int>(1 - bias));
  const Value is_small = Push(server_op<"lt">, {Push(server_op<"abs">, {x}), Number(smallest, x)});
  const Value scaled =
      Where(is_small, Mul(x, at::Scalar(std::ldexp(1.0, static_cast<int>(digits + 1)))), x);
  const Value bits = Bitcast(scaled, bits_type);
  const auto number = [&](int64_t value) { return In(value, bits_type); };
  const Value field = Push(server_op<"bitwise_and">,
                           {Push(server_op<"shift_right">, {bits, number(digits)}), number(mask)});
  const Value fraction = Push(server_op<"bitwise_or">,
                              {Push(server_op<"bitwise_and">, {bits, number(~(mask << digits))}),
                               number((bias - 1) << digits)});
  const Value shift = Where(is_small, number(digits + 1), number(0));
  const Value power =
      Push(server_op<"sub">, {Push(server_op<"sub">, {field, number(bias - 1)}), shift});
  const Value is_special = Push(
      server_op<"bitwise_or">,
      {Push(server_op<"eq">, {x, Number(0, x)}), Push(server_op<"eq">, {field, number(mask)})});
  WriteOut(mantissa, Where(is_special, x, Bitcast(fraction, x->dtype())));
  WriteOut(exponent, Where(is_special, number(0), power));
  return {mantissa, exponent};
}

// ---- CTC with the lengths in tensors. Waits for these.

std::vector<int64_t> Lengths(const at::Tensor& lengths) {
  const at::Tensor host = lengths.to(at::kCPU, at::kLong).contiguous();
  return {host.const_data_ptr<int64_t>(), host.const_data_ptr<int64_t>() + host.numel()};
}
std::tuple<at::Tensor, at::Tensor> CtcLossOfTensors(const at::Tensor& log_probs,
                                                    const at::Tensor& targets,
                                                    const at::Tensor& input_lengths,
                                                    const at::Tensor& target_lengths, int64_t blank,
                                                    bool zero_infinity) {
  return at::_ctc_loss(log_probs, targets, Lengths(input_lengths), Lengths(target_lengths), blank,
                       zero_infinity);
}
at::Tensor CtcLossBackwardOfTensors(const at::Tensor& gradient, const at::Tensor& log_probs,
                                    const at::Tensor& targets, const at::Tensor& input_lengths,
                                    const at::Tensor& target_lengths, const at::Tensor& loss,
                                    const at::Tensor& log_alpha, int64_t blank,
                                    bool zero_infinity) {
  return at::_ctc_loss_backward(gradient, log_probs, targets, Lengths(input_lengths),
                                Lengths(target_lengths), loss, log_alpha, blank, zero_infinity);
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("searchsorted.Tensor_out", SearchOut);
  m.impl("searchsorted.Scalar_out", SearchNumberOut);
  m.impl("bucketize.Tensor_out", BucketizeOut);
  m.impl("nonzero.out", NonZeroOut);
  m.impl("take.out", OutputOf<at::_ops::take::call>::Run);
  m.impl("multinomial.out", OutputOf<at::_ops::multinomial::call>::Run);
  m.impl("msort.out", OutputOf<at::_ops::msort::call>::Run);
  m.impl("max.unary_out", OutputOf<at::_ops::max::call>::Run);
  m.impl("min.unary_out", OutputOf<at::_ops::min::call>::Run);
  m.impl("is_set_to", IsSetTo);
  m.impl("range.out", RangeOut);
  m.impl("frexp.Tensor_out", FrexpOut);
  m.impl("_ctc_loss.Tensor", CtcLossOfTensors);
  m.impl("_ctc_loss_backward.Tensor", CtcLossBackwardOfTensors);
  m.impl("huber_loss.out", OutputOf<at::_ops::huber_loss::call>::Run);
  m.impl("mse_loss_backward.grad_input", OutputOf<at::_ops::mse_loss_backward::call>::Run);
  m.impl("binary_cross_entropy.out", OutputOf<at::_ops::binary_cross_entropy::call>::Run);
  m.impl("binary_cross_entropy_backward.grad_input",
         OutputOf<at::_ops::binary_cross_entropy_backward::call>::Run);
  m.impl("nll_loss2d_forward.output", OutputsOf<at::_ops::nll_loss2d_forward::call>::Run);
  m.impl("nll_loss2d_backward.grad_input", OutputOf<at::_ops::nll_loss2d_backward::call>::Run);
  m.impl("log_sigmoid_forward.output", OutputsOf<at::_ops::log_sigmoid_forward::call>::Run);
  m.impl("log_sigmoid_backward.grad_input", OutputOf<at::_ops::log_sigmoid_backward::call>::Run);
  m.impl("hardtanh_backward.grad_input", OutputOf<at::_ops::hardtanh_backward::call>::Run);
  m.impl("logit_backward.grad_input", OutputOf<at::_ops::logit_backward::call>::Run);
  m.impl("native_batch_norm.out", OutputsOf<at::_ops::native_batch_norm::call>::Run);
  m.impl("_native_batch_norm_legit.out", OutputsOf<at::_ops::_native_batch_norm_legit::call>::Run);
  m.impl("_native_batch_norm_legit.no_stats_out",
         OutputsOf<at::_ops::_native_batch_norm_legit_no_stats::call>::Run);
}

}  // namespace torch_tensord
