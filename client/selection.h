// Functions whose results have sizes that depend on values. They wait for the server once, for the
// size. While a program is recorded, they fail.
//
// Errors are in the result's status, and all functions are thread-safe.
#pragma once

#include "tensord/client/tensor.h"

namespace tensord {

// Returns the elements of x for which `mask` is true, in order: [count]. The mask is bool. x and
// the mask broadcast to each other.
Tensor MaskedSelect(const Tensor& x, const Tensor& mask);

struct UniqueResult {
  Tensor values;   // the different elements, in ascending order: [count]
  Tensor inverse;  // for each element of x, the index of its value: int64, of the shape of x
  Tensor counts;   // how often each value occurs in x: int64, [count]
};
// Returns the different elements of x, which mustn't be complex. Each NaN is different from all
// others and comes last. -0 equals +0.
UniqueResult Unique(const Tensor& x);

}  // namespace tensord
