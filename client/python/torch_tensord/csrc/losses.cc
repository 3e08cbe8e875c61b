// Losses, and their gradients.
#include <ATen/core/Reduction.h>

#include "kernels.h"
#include "value_errors.h"

namespace torch_tensord {
namespace {

Value Reduced(const Value& loss, int64_t reduction) {
  if (reduction == at::Reduction::None) return loss;
  return Reduce(reduction == at::Reduction::Mean ? "mean" : "sum", loss, {}, false);
}
// Returns the gradient of each element for the reduction.
Value Spread(const Value& gradient, int64_t reduction, int64_t count) {
  return reduction == at::Reduction::Mean ? Div(gradient, at::Scalar(static_cast<double>(count)))
                                          : gradient;
}

// Two operands. `a` has the sizes of the result, so that a sum counts expanded elements as often as
// they occur.
struct Pair {
  Value a, b;
};
Pair ReadPair(const char* name, const at::Tensor& a, const at::Tensor& b) {
  const c10::DeviceIndex device = CommonDevice(name, {&a, &b});
  const at::ScalarType dtype = ComputeDType(ResultType({&a, &b}));
  const c10::DimVector sizes = at::infer_size_dimvector(a.sizes(), b.sizes());
  return {BroadcastTo(ReadAs(a, dtype, device), sizes), ReadAs(b, dtype, device)};
}
at::Tensor ToTensor(const Value& value, at::ScalarType dtype, c10::DeviceIndex device) {
  return MakeTensor(Cast(value, dtype), device);
}

at::Tensor& MseOut(const at::Tensor& self, const at::Tensor& target, int64_t reduction,
                   at::Tensor& out) {
  const auto [x, y] = ReadPair("mse_loss", self, target);
  const Value difference = Sub(x, y);
  return WriteOut(out, Reduced(Mul(difference, difference), reduction));
}
at::Tensor MseBackward(const at::Tensor& gradient, const at::Tensor& self, const at::Tensor& target,
                       int64_t reduction) {
  const auto [x, y] = ReadPair("mse_loss_backward", self, target);
  const Value g = Spread(Cast(ReadForBroadcast(gradient), x->dtype()), reduction, x->numel());
  return ToTensor(Mul(Mul(Sub(x, y), at::Scalar(2)), g), self.scalar_type(), DeviceOf(self));
}

Value Huber(const Value& difference, double linear_from, double scale) {
  const Value size = Push(op::abs, {difference});
  const Value quadratic = Mul(Mul(size, size), at::Scalar(0.5 * scale));
  const Value linear =
      Mul(Sub(size, at::Scalar(0.5 * linear_from)), at::Scalar(scale * linear_from));
  return Where(Push(op::lt, {size, Number(linear_from, size)}), quadratic, linear);
}
at::Tensor& SmoothL1Out(const at::Tensor& self, const at::Tensor& target, int64_t reduction,
                        double beta, at::Tensor& out) {
  const auto [x, y] = ReadPair("smooth_l1_loss", self, target);
  const Value loss = beta == 0 ? Push(op::abs, {Sub(x, y)}) : Huber(Sub(x, y), beta, 1 / beta);
  return WriteOut(out, Reduced(loss, reduction));
}
at::Tensor& SmoothL1BackwardOut(const at::Tensor& gradient, const at::Tensor& self,
                                const at::Tensor& target, int64_t reduction, double beta,
                                at::Tensor& out) {
  const auto [x, y] = ReadPair("smooth_l1_loss_backward", self, target);
  const Value g = Spread(Cast(ReadForBroadcast(gradient), x->dtype()), reduction, x->numel());
  const Value difference = Sub(x, y);
  const Value slope =
      beta == 0 ? Push(op::sign, {difference})
                : Push(op::minimum,
                       {Push(op::maximum, {Div(difference, at::Scalar(beta)), Number(-1, x)}),
                        Number(1, x)});
  return WriteOut(out, Mul(slope, g));
}
at::Tensor HuberLoss(const at::Tensor& self, const at::Tensor& target, int64_t reduction,
                     double delta) {
  TORCH_CHECK(delta > 0, "huber_loss does not support non-positive values for delta, but got ",
              delta);
  const auto [x, y] = ReadPair("huber_loss", self, target);
  return ToTensor(Reduced(Huber(Sub(x, y), delta, 1), reduction), self.scalar_type(),
                  DeviceOf(self));
}
at::Tensor& HuberBackwardOut(const at::Tensor& gradient, const at::Tensor& self,
                             const at::Tensor& target, int64_t reduction, double delta,
                             at::Tensor& out) {
  const auto [x, y] = ReadPair("huber_loss_backward", self, target);
  const Value g = Spread(Cast(ReadForBroadcast(gradient), x->dtype()), reduction, x->numel());
  const Value slope =
      Push(op::minimum, {Push(op::maximum, {Sub(x, y), Number(-delta, x)}), Number(delta, x)});
  return WriteOut(out, Mul(slope, g));
}

at::Tensor Bce(const at::Tensor& self, const at::Tensor& target,
               const std::optional<at::Tensor>& weight, int64_t reduction) {
  TORCH_CHECK(self.scalar_type() == target.scalar_type(), "Found dtype ", target.scalar_type(),
              " but expected ", self.scalar_type(), " (binary_cross_entropy: target and input)");
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(self.scalar_type()),
                              "\"binary_cross_entropy\" not implemented for '", self.scalar_type(),
                              "'");
  const auto [x, y] = ReadPair("binary_cross_entropy", self, target);
  const auto log = [](const Value& p) {
    return Push(op::maximum, {Push(op::log, {p}), Number(-100, p)});
  };
  const Value rest = Push(op::log1p, {Push(op::neg, {x})});
  const Value log_rest = Push(op::maximum, {rest, Number(-100, x)});
  const Value below = Sub(y, at::Scalar(1));
  const Value plain = Sub(Mul(below, log_rest), Mul(y, log(x)));
  Value loss = plain;
  if (IsGiven(weight)) loss = Mul(loss, ReadAs(*weight, x->dtype(), DeviceOf(self)));
  loss = Reduced(loss, reduction);
  if (plain->numel() > 0) {
    // If an input is invalid, its loss is NaN, and so is the sum of the losses. A weight may be NaN
    // for a valid input, so the sum is taken before the weights are applied.
    const bool is_sum = reduction != at::Reduction::None && !IsGiven(weight);
    const Value sum = is_sum ? loss : Reduce("sum", plain, {}, false);
    // If y is outside of [0, 1], y·(y − 1) is positive.
    loss = Require(loss, {{AllAtMost(Mul(y, below), 0), Rule::kBceTarget},
                          {Push(op::eq, {sum, sum}), Rule::kBceInput}});
  }
  return ToTensor(loss, self.scalar_type(), DeviceOf(self));
}
at::Tensor BceBackward(const at::Tensor& gradient, const at::Tensor& self, const at::Tensor& target,
                       const std::optional<at::Tensor>& weight, int64_t reduction) {
  const auto [x, y] = ReadPair("binary_cross_entropy_backward", self, target);
  Value g = Spread(Cast(ReadForBroadcast(gradient), x->dtype()), reduction, self.numel());
  if (IsGiven(weight)) g = Mul(g, ReadAs(*weight, x->dtype(), DeviceOf(self)));
  const Value variance =
      Push(op::maximum, {Mul(Push(op::sub, {Number(1, x), x}), x), Number(1e-12, x)});
  return ToTensor(Mul(g, Div(Sub(x, y), variance)), self.scalar_type(), DeviceOf(self));
}

// ---- negative log likelihood

constexpr Origin kNll{"gather", "nll_loss (also called by cross_entropy)", "the target", true};
constexpr Origin kNllWeight{"index", "nll_loss (also called by cross_entropy)", "the target"};
constexpr Origin kNllBackward{"scatter", "nll_loss_backward", "the target", true};

// The classes are axis 1 of (N, C, …), or axis 0 of (C).
struct Nll {
  Value target;  // with ignored ones as class 0
  Value valid;   // which aren't ignored
  Value weight;  // of each target, 0 where it is ignored
  int64_t axis;
  c10::DimVector column;  // the shape of the targets with an axis for the classes
};
// In PyTorch, kernels make this check: in 2.11 for all these ops, in 2.15 for nll_loss2d.
void CheckNllTarget(const at::Tensor& target) {
  TORCH_CHECK(target.scalar_type() == at::kLong || target.scalar_type() == at::kByte,
              "nll_loss: expected target dtype to be Long or Byte, but got ", target.scalar_type());
}
Nll ReadNll(const at::Tensor& self, const at::Tensor& target,
            const std::optional<at::Tensor>& weight, int64_t ignore_index, at::ScalarType dtype) {
  const c10::DeviceIndex device = CommonDevice("nll_loss", {&self, &target});
  Nll nll;
  nll.axis = self.dim() == 1 ? 0 : 1;
  nll.column.append(target.sizes().begin(), target.sizes().end());
  if (self.dim() == 1) {
    nll.column = {1};
  } else {
    nll.column.insert(nll.column.begin() + 1, 1);
  }
  const Value raw = Cast(Read(target), at::kLong);
  nll.valid = Push(op::ne, {raw, Number(ignore_index, raw)});
  nll.target = Where(nll.valid, raw, Number(0, raw));
  nll.weight = Cast(nll.valid, dtype);
  if (IsGiven(weight)) {
    const Value picked = Named(kNllWeight, device,
                               Push("index", {Cast(Read(*weight), dtype), nll.target},
                                    {{"axis", 0}, {"from_end", false}}));
    nll.weight = Mul(nll.weight, picked);
  }
  return nll;
}
std::tuple<at::Tensor&, at::Tensor&> NllOut(const at::Tensor& self, const at::Tensor& target,
                                            const std::optional<at::Tensor>& weight,
                                            int64_t reduction, int64_t ignore_index,
                                            at::Tensor& output, at::Tensor& total) {
  CheckNllTarget(target);
  TORCH_CHECK(!IsGiven(weight) || weight->scalar_type() == self.scalar_type(),
              "nll_loss: the weight has another dtype than the input: expected scalar type ",
              self.scalar_type(), " but found ", weight->scalar_type());
  const at::ScalarType dtype = ComputeDType(self.scalar_type());
  if (target.numel() == 0) {
    const c10::DeviceIndex device = DeviceOf(self);
    if (reduction != at::Reduction::None) {
      WriteOut(output, Full(device, {}, reduction == at::Reduction::Mean ? NAN : 0.0, dtype));
    }
    WriteOut(total, Full(device, {}, 0, dtype));
    return {output, total};
  }
  const Nll nll = ReadNll(self, target, weight, ignore_index, dtype);
  const Value picked = Named(kNll, DeviceOf(self),
                             Push("gather", {Read(self), Reshape(nll.target, nll.column)},
                                  {{"axis", nll.axis}, {"from_end", false}}));
  const Value loss = Push(op::neg, {Mul(Reshape(Cast(picked, dtype), target.sizes()), nll.weight)});
  const Value sum = Reduce("sum", nll.weight, {}, false);
  if (reduction == at::Reduction::None) {
    WriteOut(output, self.dim() == 1 ? Reshape(loss, {}) : loss);
    WriteOut(total, Full(DeviceOf(self), {}, 0, dtype));
    return {output, total};
  }
  const Value all = Reduce("sum", loss, {}, false);
  WriteOut(output, reduction == at::Reduction::Mean ? Div(all, sum) : all);
  WriteOut(total, sum);
  return {output, total};
}
at::Tensor& NllBackwardOut(const at::Tensor& gradient, const at::Tensor& self,
                           const at::Tensor& target, const std::optional<at::Tensor>& weight,
                           int64_t reduction, int64_t ignore_index, const at::Tensor& total,
                           at::Tensor& out) {
  CheckNllTarget(target);
  if (target.numel() == 0) return out;
  const at::ScalarType dtype = ComputeDType(self.scalar_type());
  const Nll nll = ReadNll(self, target, weight, ignore_index, dtype);
  Value g = Push(op::neg, {Mul(nll.weight, Cast(ReadForBroadcast(gradient), dtype))});
  if (reduction == at::Reduction::Mean) {
    // If all targets are ignored, the sum of the weights is 0.
    g = Where(nll.valid, Div(g, Cast(Read(total), dtype)), Number(0, g));
  }
  const Value zeros = Zeros(DeviceOf(self), self.sizes(), dtype);
  const Value made =
      Push("scatter", {zeros, Reshape(nll.target, nll.column), Reshape(g, nll.column)},
           {{"axis", nll.axis}, {"reduce", "none"}, {"from_end", false}}, 1);
  return WriteOut(out, Named(kNllBackward, DeviceOf(self), made));
}
std::tuple<at::Tensor, at::Tensor> Nll2d(const at::Tensor& self, const at::Tensor& target,
                                         const std::optional<at::Tensor>& weight, int64_t reduction,
                                         int64_t ignore_index) {
  const c10::DeviceIndex device = DeviceOf(self);
  at::Tensor output =
      MakeContiguous(reduction == at::Reduction::None ? target.sizes() : at::IntArrayRef{},
                     self.scalar_type(), device);
  at::Tensor total = MakeContiguous({}, self.scalar_type(), device);
  NllOut(self, target, weight, reduction, ignore_index, output, total);
  return {output, total};
}
at::Tensor Nll2dBackward(const at::Tensor& gradient, const at::Tensor& self,
                         const at::Tensor& target, const std::optional<at::Tensor>& weight,
                         int64_t reduction, int64_t ignore_index, const at::Tensor& total) {
  at::Tensor out = MakeContiguous(self.sizes(), self.scalar_type(), DeviceOf(self));
  return NllBackwardOut(gradient, self, target, weight, reduction, ignore_index, total, out);
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("mse_loss.out", MseOut);
  m.impl("mse_loss_backward", MseBackward);
  m.impl("smooth_l1_loss.out", SmoothL1Out);
  m.impl("smooth_l1_loss_backward.grad_input", SmoothL1BackwardOut);
  m.impl("huber_loss", HuberLoss);
  m.impl("huber_loss_backward.out", HuberBackwardOut);
  m.impl("binary_cross_entropy", Bce);
  m.impl("binary_cross_entropy_backward", BceBackward);
  m.impl("nll_loss_forward.output", NllOut);
  m.impl("nll_loss_backward.grad_input", NllBackwardOut);
  m.impl("nll_loss2d_forward", Nll2d);
  m.impl("nll_loss2d_backward", Nll2dBackward);
}

}  // namespace torch_tensord
