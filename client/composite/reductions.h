// Reductions that are composed of the ops of ops.h. README.md of this folder lists their
// definitions.
//
// As in ops.h, no function waits, errors are in the result's status, and all functions are
// thread-safe.
#pragma once

#include "tensord/client/ops.h"
#include "tensord/client/tensor.h"

namespace tensord {

// Return the variance, and the standard deviation, of a floating tensor.
Tensor Var(const Tensor& x, const VarOptions& options = {});
Tensor Std(const Tensor& x, const VarOptions& options = {});

// Return whether all elements, or any element, are nonzero, as bool. NaN isn't zero. If there are
// no elements, All returns true and Any returns false.
Tensor All(const Tensor& x, const ReduceOptions& options = {});
Tensor Any(const Tensor& x, const ReduceOptions& options = {});

}  // namespace tensord
