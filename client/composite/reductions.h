// Reductions that are composed of the ops of ops.h. README.md of this folder lists their
// definitions.
//
// As in ops.h, no function waits, errors are in the result's status, and all functions are
// thread-safe.
#pragma once

#include "tensord/client/ops.h"
#include "tensord/client/tensor.h"

namespace tensord {

// The variance, and the standard deviation, of a floating tensor.
Tensor Var(const Tensor& x, const VarOptions& options = {});
Tensor Std(const Tensor& x, const VarOptions& options = {});

// Whether all elements, or any element, are nonzero, as bool. NaN isn't zero. Of no elements, All
// is true and Any is false.
Tensor All(const Tensor& x, const ReduceOptions& options = {});
Tensor Any(const Tensor& x, const ReduceOptions& options = {});

// log Σ exp(x), computed without overflow; -inf for no elements. Integers and bool are converted to
// float32.
Tensor LogSumExp(const Tensor& x, const ReduceOptions& options = {});

}  // namespace tensord
