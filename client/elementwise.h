// Elementwise functions that are compositions: ops that the server builds from other ops
// (common/ops/compositions/elementwise.cc). common/OPS.md lists their definitions. Names and
// meanings are PyTorch's.
//
// As in ops.h, no function waits, errors are in the result's status, operands broadcast, and all
// functions are thread-safe. If a function would round more than once, it computes float16 and
// bfloat16 in float32, and rounds the result. Where an operand may be a scalar, at least one
// operand must be a tensor.
#pragma once

#include <limits>

#include "tensord/client/ops.h"
#include "tensord/client/scalar.h"
#include "tensord/client/tensor.h"

namespace tensord {

// Returns x².
Tensor Square(const Tensor& x);
// Returns 1 / x, and 2 to the x. Integers and bool are converted to float32.
Tensor Reciprocal(const Tensor& x);
Tensor Exp2(const Tensor& x);
// Returns x without its integer part: x - trunc(x).
Tensor Frac(const Tensor& x);
// Returns 1, -1 or 0, as Sign does, but 0 for NaN.
Tensor Sgn(const Tensor& x);

// The results of these five are bool. Integers and bool are finite.
Tensor IsNan(const Tensor& x);
Tensor IsInf(const Tensor& x);
Tensor IsPosInf(const Tensor& x);
Tensor IsNegInf(const Tensor& x);
Tensor IsFinite(const Tensor& x);
// Returns, as bool, whether the sign bit is set: true for -0 and for a NaN with that bit.
Tensor SignBit(const Tensor& x);
struct NanToNumOptions {
  double nan = 0;
  // NaN stands for the largest, and the smallest, finite number of the dtype.
  double posinf = std::numeric_limits<double>::quiet_NaN();
  double neginf = std::numeric_limits<double>::quiet_NaN();
};
// Returns x with numbers in place of NaN and the infinities.
Tensor NanToNum(const Tensor& x, const NanToNumOptions& options = {});

// An operand counts as true unless it is zero. Tensors may have different dtypes. The results are
// bool.
Tensor LogicalAnd(Operand a, Operand b);
Tensor LogicalOr(Operand a, Operand b);
Tensor LogicalXor(Operand a, Operand b);
Tensor LogicalNot(const Tensor& x);

// Inverts every bit of an integer, or the value of a bool.
Tensor BitwiseNot(const Tensor& x);

// Returns the remainder of a / b, with the sign of a.
Tensor Fmod(Operand a, Operand b);
// Returns a / b rounded toward zero.
Tensor TruncDivide(Operand a, Operand b);
// Returns the larger, and the smaller, operand. If one is NaN, returns the other one.
Tensor Fmax(Operand a, Operand b);
Tensor Fmin(Operand a, Operand b);

// Raises values below `min` to `min` and lowers values above `max` to `max`. If `min` exceeds
// `max`, the result is `max`. NaN stays NaN. For one bound, use Maximum or Minimum.
Tensor Clamp(const Tensor& x, Operand min, Operand max);

// Returns a + weight (b - a). Takes floating tensors. The result is exact for the weights 0 and 1.
Tensor Lerp(const Tensor& a, const Tensor& b, Operand weight);
// Returns x + alpha y, as torch.add(x, y, alpha=alpha).
Tensor AddScaled(const Tensor& x, const Tensor& y, Operand alpha);
// Returns x + value a b.
Tensor Addcmul(const Tensor& x, const Tensor& a, const Tensor& b, Operand value = 1);
// Returns x + value a / b. Takes floating tensors.
Tensor Addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, Operand value = 1);

}  // namespace tensord
