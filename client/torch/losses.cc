// Losses, and their gradients. They are ops of the server (common/ops/compositions/losses.cc).
#include <ATen/ops/binary_cross_entropy_with_logits_native.h>

#include "kernels.h"
#include "value_errors.h"

namespace torch_tensord {
namespace {

// ---- losses of elements

Attr ReductionOf(int64_t reduction) { return {"reduction", ReductionName(reduction)}; }

// Two operands of one dtype, broadcast to one shape. They are broadcast first, so that a sum counts
// an expanded element each time that it occurs.
struct Pair {
  Value x, target;
};
Pair ReadPair(const char* name, const at::Tensor& x, const at::Tensor& target) {
  const c10::DeviceIndex device = CommonDevice(name, {&x, &target});
  const at::ScalarType dtype = ResultType({&x, &target});
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(dtype), name, " isn't implemented for ", dtype);
  const c10::DimVector sizes = at::infer_size_dimvector(x.sizes(), target.sizes());
  return {BroadcastTo(ReadAs(x, dtype, device), sizes),
          BroadcastTo(ReadAs(target, dtype, device), sizes)};
}

// Sends the loss `name`, or its gradient if `gradient` isn't null.
Value Loss(const char* name, const at::Tensor& x, const at::Tensor& target, Attrs attrs,
           const std::optional<at::Tensor>& weight = std::nullopt,
           const at::Tensor* gradient = nullptr) {
  const Pair pair = ReadPair(name, x, target);
  Value g, factor;
  c10::SmallVector<In, 4> inputs;
  if (gradient != nullptr) inputs.emplace_back(g = ReadForBroadcast(*gradient));
  inputs.emplace_back(pair.x);
  inputs.emplace_back(pair.target);
  if (IsGiven(weight)) {
    inputs.emplace_back(factor = ReadAs(*weight, pair.x->dtype(), DeviceOf(x)));
  }
  return PushAll(name, inputs, attrs)[0];
}
at::Tensor ToTensor(const Value& value, at::ScalarType dtype, c10::DeviceIndex device) {
  return MakeTensor(Cast(value, dtype), device);
}

Value Mse(const at::Tensor& self, const at::Tensor& target, int64_t reduction) {
  return Loss("mse_loss", self, target, {ReductionOf(reduction)});
}
Value SmoothL1(const at::Tensor& self, const at::Tensor& target, int64_t reduction, double beta) {
  TORCH_CHECK(beta >= 0, "smooth_l1_loss does not support negative values for beta.");
  return Loss("smooth_l1_loss", self, target, {ReductionOf(reduction), {"beta", beta}});
}
Value Huber(const at::Tensor& self, const at::Tensor& target, int64_t reduction, double delta) {
  TORCH_CHECK(delta > 0, "huber_loss does not support non-positive values for delta, but got ",
              delta);
  return Cast(Loss("huber_loss", self, target, {ReductionOf(reduction), {"delta", delta}}),
              self.scalar_type());
}
Value MseGradient(const at::Tensor& gradient, const at::Tensor& self, const at::Tensor& target,
                  int64_t reduction) {
  return Loss("mse_loss_backward", self, target, {ReductionOf(reduction)}, {}, &gradient);
}
Value SmoothL1Gradient(const at::Tensor& gradient, const at::Tensor& self, const at::Tensor& target,
                       int64_t reduction, double beta) {
  return Loss("smooth_l1_loss_backward", self, target, {ReductionOf(reduction), {"beta", beta}}, {},
              &gradient);
}
Value HuberGradient(const at::Tensor& gradient, const at::Tensor& self, const at::Tensor& target,
                    int64_t reduction, double delta) {
  return Loss("huber_loss_backward", self, target, {ReductionOf(reduction), {"delta", delta}}, {},
              &gradient);
}

// The kernels of an op that returns kFunction(…): MakeLoss() makes the result, WriteLoss() writes
// out=. If MakeLoss() isn't registered, PyTorch allocates an output of other sizes, or fills it
// first.
template <auto kFunction, typename... Options>
at::Tensor MakeLoss(const at::Tensor& self, const at::Tensor& target, Options... options) {
  return MakeTensor(kFunction(self, target, options...), DeviceOf(self));
}
template <auto kFunction, typename... Options>
at::Tensor& WriteLoss(const at::Tensor& self, const at::Tensor& target, Options... options,
                      at::Tensor& out) {
  return WriteOut(out, kFunction(self, target, options...));
}
template <auto kFunction, typename... Options>
at::Tensor MakeGradient(const at::Tensor& gradient, const at::Tensor& self,
                        const at::Tensor& target, Options... options) {
  return ToTensor(kFunction(gradient, self, target, options...), self.scalar_type(),
                  DeviceOf(self));
}
template <auto kFunction, typename... Options>
at::Tensor& WriteGradient(const at::Tensor& gradient, const at::Tensor& self,
                          const at::Tensor& target, Options... options, at::Tensor& out) {
  return WriteOut(out, kFunction(gradient, self, target, options...));
}

at::Tensor Bce(const at::Tensor& self, const at::Tensor& target,
               const std::optional<at::Tensor>& weight, int64_t reduction) {
  TORCH_CHECK(self.scalar_type() == target.scalar_type(), "Found dtype ", target.scalar_type(),
              " but expected ", self.scalar_type(), " (binary_cross_entropy: target and input)");
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(self.scalar_type()),
                              "\"binary_cross_entropy\" not implemented for '", self.scalar_type(),
                              "'");
  Value loss = Loss("binary_cross_entropy", self, target, {ReductionOf(reduction)}, weight);
  if (self.numel() > 0) {
    // If an input is invalid, its loss is NaN, and so is the sum of the losses. A weight may be NaN
    // for a valid input, so this sum has no weights.
    const bool is_sum = reduction != at::Reduction::None && !IsGiven(weight);
    const Value sum =
        is_sum ? loss
               : Loss("binary_cross_entropy", self, target, {ReductionOf(at::Reduction::Sum)});
    // If y is outside of [0, 1], y·(y − 1) is positive.
    const Value y = Read(target), outside = Mul(y, Sub(y, at::Scalar(1)));
    loss = Require(loss, {{AllAtMost(outside, 0), Rule::kBceTarget},
                          {Push(server_op<"eq">, {sum, sum}), Rule::kBceInput}});
  }
  return ToTensor(loss, self.scalar_type(), DeviceOf(self));
}
at::Tensor BceBackward(const at::Tensor& gradient, const at::Tensor& self, const at::Tensor& target,
                       const std::optional<at::Tensor>& weight, int64_t reduction) {
  return ToTensor(Loss("binary_cross_entropy_backward", self, target, {ReductionOf(reduction)},
                       weight, &gradient),
                  self.scalar_type(), DeviceOf(self));
}

// Without this function, PyTorch runs several ops.
at::Tensor BceWithLogits(const at::Tensor& self, const at::Tensor& target,
                         const std::optional<at::Tensor>& weight,
                         const std::optional<at::Tensor>& pos_weight, int64_t reduction) {
  const auto widens = [&](const std::optional<at::Tensor>& factor) {
    return IsGiven(factor) &&
           at::IntArrayRef(at::infer_size_dimvector(self.sizes(), factor->sizes())) != self.sizes();
  };
  if (widens(weight) || widens(pos_weight) || !self.sizes().equals(target.sizes()) ||
      self.scalar_type() != target.scalar_type()) {
    return at::native::binary_cross_entropy_with_logits(self, target, weight, pos_weight,
                                                        reduction);
  }
  constexpr char kName[] = "binary_cross_entropy_with_logits";
  const auto [x, y] = ReadPair(kName, self, target);
  const auto read = [&, dtype = x->dtype()](const at::Tensor& factor) {
    return ReadAs(factor, dtype, DeviceOf(self));
  };
  Value factor, positive;
  c10::SmallVector<In, 4> inputs = {x, y};
  if (IsGiven(weight)) {
    inputs.emplace_back(factor = read(*weight));
  } else if (IsGiven(pos_weight)) {
    inputs.push_back(Number(1, x));  // pos_weight is the input after weight
  }
  if (IsGiven(pos_weight)) inputs.emplace_back(positive = read(*pos_weight));
  return ToTensor(PushAll(kName, inputs, {ReductionOf(reduction)})[0], x->dtype(), DeviceOf(self));
}

// ---- negative log likelihood

constexpr Origin kNll{"nll_loss", "nll_loss (also called by cross_entropy)", "the target", true};
constexpr Origin kNllBackward{"nll_loss_backward", "nll_loss_backward", "the target", true};

// In PyTorch, kernels make this check: in 2.11 for all these ops, in 2.15 for nll_loss2d.
void CheckNllTarget(const at::Tensor& target) {
  TORCH_CHECK(target.scalar_type() == at::kLong || target.scalar_type() == at::kByte,
              "nll_loss: expected target dtype to be Long or Byte, but got ", target.scalar_type());
}
// Sends nll_loss, or its gradient if `gradient` isn't null.
std::vector<Value> Nll(const at::Tensor& self, const at::Tensor& target,
                       const std::optional<at::Tensor>& weight, int64_t reduction,
                       int64_t ignore_index, const at::Tensor* gradient = nullptr) {
  CommonDevice("nll_loss", {&self, &target});
  Value g, factor, classes = Cast(Read(target), at::kLong);
  if (self.dim() == 1) classes = Reshape(classes, {});
  const Value x = Read(self);
  c10::SmallVector<In, 4> inputs;
  if (gradient != nullptr) {
    g = ReadForBroadcast(*gradient);
    if (self.dim() == 1) g = Reshape(g, {});
    inputs.emplace_back(g);
  }
  inputs.emplace_back(x);
  inputs.emplace_back(classes);
  if (IsGiven(weight)) inputs.emplace_back(factor = Read(*weight));
  std::vector<Value> made =
      PushAll(gradient == nullptr ? "nll_loss" : "nll_loss_backward", inputs,
              {{"axis", ClassAxis(self)}, {"ignore_index", ignore_index}, ReductionOf(reduction)});
  Named(gradient == nullptr ? kNll : kNllBackward, DeviceOf(self), made[0]);
  return made;
}
std::tuple<at::Tensor&, at::Tensor&> NllOut(const at::Tensor& self, const at::Tensor& target,
                                            const std::optional<at::Tensor>& weight,
                                            int64_t reduction, int64_t ignore_index,
                                            at::Tensor& output, at::Tensor& total) {
  CheckNllTarget(target);
  TORCH_CHECK(!IsGiven(weight) || weight->scalar_type() == self.scalar_type(),
              "nll_loss: the weight has another dtype than the input: expected scalar type ",
              self.scalar_type(), " but found ", weight->scalar_type());
  const std::vector<Value> made = Nll(self, target, weight, reduction, ignore_index);
  WriteOut(output, made[0]);
  WriteOut(total, reduction == at::Reduction::None ? Full(DeviceOf(self), {}, 0, self.scalar_type())
                                                   : made[1]);
  return {output, total};
}
at::Tensor& NllBackwardOut(const at::Tensor& gradient, const at::Tensor& self,
                           const at::Tensor& target, const std::optional<at::Tensor>& weight,
                           int64_t reduction, int64_t ignore_index, const at::Tensor& /*total*/,
                           at::Tensor& out) {
  CheckNllTarget(target);
  return WriteOut(out, Nll(self, target, weight, reduction, ignore_index, &gradient)[0]);
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
  m.impl("mse_loss", MakeLoss<Mse, int64_t>);
  m.impl("mse_loss.out", WriteLoss<Mse, int64_t>);
  m.impl("mse_loss_backward", MakeGradient<MseGradient, int64_t>);
  m.impl("smooth_l1_loss", MakeLoss<SmoothL1, int64_t, double>);
  m.impl("smooth_l1_loss.out", WriteLoss<SmoothL1, int64_t, double>);
  m.impl("smooth_l1_loss_backward", MakeGradient<SmoothL1Gradient, int64_t, double>);
  m.impl("smooth_l1_loss_backward.grad_input", WriteGradient<SmoothL1Gradient, int64_t, double>);
  m.impl("huber_loss", MakeLoss<Huber, int64_t, double>);
  m.impl("huber_loss_backward", MakeGradient<HuberGradient, int64_t, double>);
  m.impl("huber_loss_backward.out", WriteGradient<HuberGradient, int64_t, double>);
  m.impl("binary_cross_entropy", Bce);
  m.impl("binary_cross_entropy_backward", BceBackward);
  m.impl("binary_cross_entropy_with_logits", BceWithLogits);
  m.impl("nll_loss_forward.output", NllOut);
  m.impl("nll_loss_backward.grad_input", NllBackwardOut);
  m.impl("nll_loss2d_forward", Nll2d);
  m.impl("nll_loss2d_backward", Nll2dBackward);
}

}  // namespace torch_tensord
