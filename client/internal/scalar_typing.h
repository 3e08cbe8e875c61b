// The dtype of an op between a tensor and a scalar.
#pragma once

#include "tensord/client/scalar.h"
#include "tensord/common/dtype.h"

namespace tensord::internal {

// Returns the dtype of a scalar alone: bool, int64, float32, or uint64 for an integer that is too
// large for int64.
inline DType DefaultDType(Scalar scalar) {
  if (scalar.is_bool()) return DType::kBool;
  if (scalar.is_large()) return DType::kUInt64;
  return scalar.is_int() ? DType::kInt64 : DType::kFloat32;
}

// Returns the dtype in which an op combines a tensor and a scalar, by PyTorch's rule. If the scalar
// is of a higher kind (bool < integer < floating), returns DefaultDType(scalar), otherwise the
// tensor's dtype.
inline DType PromotedDType(DType tensor, Scalar scalar) {
  const DType alone = DefaultDType(scalar);
  return KindOf(alone) > KindOf(tensor) ? alone : tensor;
}

}  // namespace tensord::internal
