// Steps of optimizers that are composed of the ops of ops.h. README.md of this folder lists their
// definitions. functional.h has AdamStep, which is also AdamW.
//
// As in ops.h, no function waits, errors are in the results' statuses, and all functions are
// thread-safe.
#pragma once

#include <optional>

#include "tensord/client/ops.h"
#include "tensord/client/tensor.h"

namespace tensord {

struct SgdOptions {
  double momentum = 0;
  double dampening = 0;     // the share of a gradient that isn't added to the momentum's buffer
  double weight_decay = 0;  // this share of p is added to the gradient
  bool nesterov = false;    // needs a momentum
  bool maximize = false;    // adds the gradient to p
};
struct SgdState {
  Tensor p;                           // the parameter
  std::optional<Tensor> buffer = {};  // of the momentum; none: before the first step
};
// Returns the state after a step of stochastic gradient descent, as torch.optim.SGD computes it.
// The learning rate is a number, or a tensor of shape [], such as an input of a recorded program.
// The new tensors have the dtype of p. Without a momentum, there is no buffer.
SgdState SgdStep(const SgdState& state, const Tensor& gradient, Operand lr,
                 const SgdOptions& options = {});

}  // namespace tensord
