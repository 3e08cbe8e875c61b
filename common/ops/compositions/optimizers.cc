// Steps of optimizers that are compositions. They are computed in float32 if the parameter has 16
// bits.
#include <vector>

#include "tensord/common/ops/composition.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/ops/op_registry.h"

namespace tensord {
namespace formula {
namespace {

// The buffer is rounded to the parameter's dtype before the step reads it, as in PyTorch.
void SgdStep(Formula& f) {
  f.RequireFloating();
  const DType dtype = f.input(0).dtype(), wide = WideDType(dtype);
  const double momentum = f.attrs().Float("momentum");
  const double weight_decay = f.attrs().Float("weight_decay");
  const bool nesterov = f.attrs().Bool("nesterov");
  if (momentum == 0 && nesterov) return f.Fail("nesterov needs a momentum");
  if (momentum == 0 && f.num_inputs() > 3) return f.Fail("a buffer needs a momentum");
  if (f.input(2).shape().rank() != 0) return f.Fail("lr must have the shape []");
  const Value p = f.input(0).To(wide);
  Value step = f.input(1).To(wide);
  if (f.attrs().Bool("maximize")) step = -step;
  if (weight_decay != 0) step = step + p * weight_decay;
  Value buffer = step;
  if (momentum != 0) {
    if (f.num_inputs() > 3) {
      const double share = 1 - f.attrs().Float("dampening");
      buffer = f.input(3).To(wide) * momentum + step * share;
    }
    buffer = buffer.To(dtype);
    const Value stored = buffer.To(wide);
    step = nesterov ? step + stored * momentum : stored;
  }
  const Value next = (p - step * f.input(2).To(wide)).To(dtype);
  if (!f.ok()) return;
  if (next.shape() != p.shape() || (momentum != 0 && buffer.shape() != p.shape())) {
    return f.Fail("the gradient and the buffer must broadcast to the shape of p");
  }
  f.Return(next);
  if (momentum != 0) f.Return(buffer);
}

void AdagradStep(Formula& f) {
  f.RequireFloating();
  const DType dtype = f.input(0).dtype(), wide = WideDType(dtype);
  const double lr_decay = f.attrs().Float("lr_decay");
  const double weight_decay = f.attrs().Float("weight_decay");
  for (int i : {3, 4}) {
    if (f.input(i).shape().rank() != 0) return f.Fail("step and lr must have the shape []");
  }
  const Value p = f.input(0).To(wide);
  Value g = f.input(1).To(wide);
  if (f.attrs().Bool("maximize")) g = -g;
  if (weight_decay != 0) g = g + p * weight_decay;
  const Value sum = f.input(2).To(wide) + g * g;
  Value rate = f.input(4);
  if (lr_decay != 0) {
    rate = rate.To(DType::kFloat64) / ((f.input(3).To(DType::kFloat64) - 1) * lr_decay + 1);
  }
  const Value next = p - g * rate.To(wide) / (Sqrt(sum) + f.attrs().Float("eps"));
  if (!f.ok()) return;
  if (next.shape() != p.shape() || sum.shape() != p.shape()) {
    return f.Fail("the gradient and the sum must broadcast to the shape of p");
  }
  f.Return(next.To(dtype));
  f.Return(sum.To(dtype));
}

}  // namespace
}  // namespace formula

void AppendOptimizerCompositions(std::vector<OpSchema>& ops) {
  ops.push_back(
      {.name = "sgd_step",
       .signature = "(…), (…), [][, (…)] -> (…)[, (…)]",
       .doc =
           "Stochastic gradient descent, as torch.optim.SGD: p - lr (gradient + weight_decay p). "
           "With a momentum, also returns the buffer.",
       .min_inputs = 3,
       .max_inputs = 4,
       .attrs = {OptionalAttr("momentum", AttrType::kFloat, 0.0,
                              "not 0: the step follows the buffer, which is a result"),
                 OptionalAttr("dampening", AttrType::kFloat, 0.0,
                              "the share of the gradient that isn't added to the buffer"),
                 OptionalAttr("weight_decay", AttrType::kFloat, 0.0,
                              "this share of p is added to the gradient"),
                 OptionalAttr("nesterov", AttrType::kBool, false, "needs a momentum"),
                 OptionalAttr("maximize", AttrType::kBool, false, "adds the gradient to p")},
       .input_names = {"p", "gradient", "lr", "buffer"},
       .formula = formula::SgdStep});
  ops.push_back(
      {.name = "adagrad_step",
       .signature = "(…), (…), (…), [], [] -> (…), (…)",
       .doc = "A step of torch.optim.Adagrad. Returns p and the sum of the squared gradients.",
       .min_inputs = 5,
       .max_inputs = 5,
       .attrs = {OptionalAttr("lr_decay", AttrType::kFloat, 0.0,
                              "lr is divided by 1 + (step - 1) lr_decay"),
                 OptionalAttr("weight_decay", AttrType::kFloat, 0.0,
                              "this share of p is added to the gradient"),
                 OptionalAttr("eps", AttrType::kFloat, 1e-10, "added to the root of the sum"),
                 OptionalAttr("maximize", AttrType::kBool, false, "adds the gradient to p")},
       .input_names = {"p", "gradient", "sum", "step", "lr"},
       .formula = formula::AdagradStep});
}

}  // namespace tensord
