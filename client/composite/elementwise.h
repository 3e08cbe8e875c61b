// Elementwise functions that are composed of the ops of ops.h. README.md of this folder lists their
// definitions.
//
// As in ops.h, no function waits, errors are in the result's status, operands broadcast, and all
// functions are thread-safe. An error that the client finds begins with the function's name. The
// server runs adjacent ops as one fused kernel. If a function would round more than once, it
// computes float16 and bfloat16 in float32, and converts the result.
#pragma once

#include "tensord/client/ops.h"
#include "tensord/client/scalar.h"
#include "tensord/client/tensor.h"

namespace tensord {

// Returns x².
Tensor Square(const Tensor& x);
// Returns 1 / x. Integers and bool are converted to float32.
Tensor Reciprocal(const Tensor& x);
// Raises values below `min` to `min` and lowers values above `max` to `max`. If `min` exceeds
// `max`, the result is `max`. NaN stays NaN. For one bound, use Maximum or Minimum.
Tensor Clamp(const Tensor& x, Operand min, Operand max);

// The results of these three are bool. Integers and bool are finite.
Tensor IsNan(const Tensor& x);
Tensor IsInf(const Tensor& x);
Tensor IsFinite(const Tensor& x);
// Returns, as bool, whether the sign bit is set: true for -0 and for a NaN with that bit.
Tensor SignBit(const Tensor& x);

// An operand counts as true unless it is zero. Operands may have different dtypes. The results are
// bool.
Tensor LogicalAnd(const Tensor& a, const Tensor& b);
Tensor LogicalOr(const Tensor& a, const Tensor& b);
Tensor LogicalXor(const Tensor& a, const Tensor& b);
Tensor LogicalNot(const Tensor& x);

// Inverts every bit of an integer, or the value of a bool.
Tensor BitwiseNot(const Tensor& x);

// Returns a + weight (b - a). Takes floating tensors. The result is exact for the weights 0 and 1.
Tensor Lerp(const Tensor& a, const Tensor& b, Operand weight);
// Returns x + value a b.
Tensor Addcmul(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value = 1);
// Returns x + value a / b. Takes floating tensors.
Tensor Addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value = 1);

}  // namespace tensord
