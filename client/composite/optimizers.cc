#include "tensord/client/composite/optimizers.h"

#include "tensord/client/internal/composite.h"

namespace tensord {

SgdState SgdStep(const SgdState& state, const Tensor& gradient, Operand lr,
                 const SgdOptions& options) {
  using internal::Composite;
  using internal::Widen;
  const DType dtype = state.p.dtype();
  const Tensor p = Widen(state.p);
  const bool has_buffer = options.momentum != 0 && state.buffer.has_value();
  Tensor step = Widen(gradient);
  if (options.maximize) step = -step;
  if (options.weight_decay != 0) step = step + p * options.weight_decay;
  SgdState next;
  if (options.momentum != 0) {
    Tensor buffer = step;
    if (has_buffer) {
      buffer = Widen(*state.buffer) * options.momentum + step * (1 - options.dampening);
    }
    next.buffer = Composite("sgd_step", {state.p, gradient, lr}, buffer.To(dtype));
    const Tensor stored = Widen(*next.buffer);
    step = options.nesterov ? step + stored * options.momentum : stored;
  } else if (options.nesterov) {
    return {Tensor::Failed(absl::InvalidArgumentError("sgd_step: nesterov needs a momentum"))};
  }
  const Tensor change = lr.tensor() != nullptr ? step * lr.tensor()->To(p.dtype()) : step * lr;
  next.p = Composite("sgd_step", {state.p, gradient, lr}, (p - change).To(dtype));
  if (next.p.ok() && next.p.shape() != state.p.shape()) {
    next.p = Tensor::Failed(absl::InvalidArgumentError(
        "sgd_step: the gradient, the buffer and lr must broadcast to the shape of p"));
  }
  return next;
}

}  // namespace tensord
