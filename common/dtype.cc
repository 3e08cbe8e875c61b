#include "tensord/common/dtype.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace tensord {
namespace {

absl::string_view KindName(DType dtype) {
  if (IsBool(dtype)) return "bool";
  return IsInteger(dtype) ? "integer" : "floating";
}

bool IsEither(DType a, DType b, DType wanted) { return a == wanted || b == wanted; }

DType PromoteIntegers(DType a, DType b) {
  if (IsEither(a, b, DType::kInt64)) return DType::kInt64;
  return DType::kInt32;  // int32 with a narrower one, or int8 with uint8
}

DType PromoteFloats(DType a, DType b) {
  if (IsEither(a, b, DType::kFloat64)) return DType::kFloat64;
  return DType::kFloat32;  // float32 with a narrower one, or float16 with bfloat16
}

}  // namespace

absl::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "bool";
    case DType::kUInt8:
      return "uint8";
    case DType::kInt8:
      return "int8";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kUnspecified:
      break;
  }
  return "unspecified";
}

absl::StatusOr<DType> PromoteTypes(DType a, DType b) {
  if (!IsValid(a) || !IsValid(b)) {
    return absl::InvalidArgumentError("a dtype is unspecified, so there is nothing to promote");
  }
  if (a == b) return a;
  if (IsInteger(a) && IsInteger(b)) return PromoteIntegers(a, b);
  if (IsFloating(a) && IsFloating(b)) return PromoteFloats(a, b);
  // The numbers of the enum grow from bool over integers to floating dtypes.
  const DType lower = std::min(a, b);
  const DType higher = std::max(a, b);
  return absl::InvalidArgumentError(absl::StrCat(
      DTypeName(a), " and ", DTypeName(b),
      " don't promote to one dtype: they are of different kinds (", KindName(a), " and ",
      KindName(b), "); cast one first, for example ", DTypeName(lower), " to ", DTypeName(higher)));
}

}  // namespace tensord
