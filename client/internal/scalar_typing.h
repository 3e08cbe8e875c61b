// The dtype of an op between a tensor and a scalar.
#pragma once

#include "tensord/client/scalar.h"
#include "tensord/common/dtype.h"

namespace tensord::internal {

// Returns the dtype of a scalar alone: bool, int64 or float32.
inline DType DefaultDType(Scalar scalar) {
  return scalar.is_bool() ? DType::kBool : scalar.is_int() ? DType::kInt64 : DType::kFloat32;
}

// Returns the dtype in which an op combines a tensor and a scalar, by PyTorch's rule. If the scalar
// is of a higher kind (bool < integer < floating), returns DefaultDType(scalar), otherwise the
// tensor's dtype.
inline DType PromotedDType(DType tensor, Scalar scalar) {
  const int tensor_kind = IsFloating(tensor) ? 2 : IsInteger(tensor) ? 1 : 0;
  const int scalar_kind = scalar.is_float() ? 2 : scalar.is_int() ? 1 : 0;
  return scalar_kind > tensor_kind ? DefaultDType(scalar) : tensor;
}

}  // namespace tensord::internal
