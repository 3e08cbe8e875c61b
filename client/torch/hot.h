// Helpers of the ops with a fast path (hot.cc, hot_elementwise.cc).
#pragma once

#include "kernels.h"

namespace torch_tensord {

// Returns whether a tensor is on a device of tensord and row-major.
inline bool IsPlain(const at::Tensor& x) { return IsOurs(x) && IsRowMajor(x); }
inline bool IsPlainFloat(const at::Tensor& x) {
  return IsPlain(x) && at::isFloatingType(x.scalar_type());
}
// Returns whether two tensors have the same sizes, dtype and device.
inline bool AreAlike(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.device() == b.device() &&
         a.sizes().equals(b.sizes());
}

// If the fast path of an op of two operands applies, sets `*result` and returns true. If the shapes
// can't be broadcast, throws.
bool BinaryFast(ServerOp& op, const at::Tensor& a, const at::Tensor& b, at::Tensor* result);

// Computes kOp(x). If the fast path doesn't apply, calls kSlow.
template <ServerOp& kOp, at::Tensor (*kSlow)(const at::Tensor&)>
at::Tensor UnaryFast(const at::Tensor& x) {
  if (IsPlainFloat(x)) return MakeTensor(Push(kOp, {Read(x)}), DeviceOf(x));
  return kSlow(x);
}

}  // namespace torch_tensord
