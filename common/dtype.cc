#include "tensord/common/dtype.h"

#include "absl/strings/str_cat.h"

namespace tensord {
namespace {

absl::string_view KindName(DType dtype) {
  switch (KindOf(dtype)) {
    case DTypeKind::kBool:
      return "bool";
    case DTypeKind::kInteger:
      return "integer";
    case DTypeKind::kFloating:
      return "floating";
    case DTypeKind::kComplex:
      break;
  }
  return "complex";
}

bool IsEither(DType a, DType b, DType wanted) { return a == wanted || b == wanted; }

// Returns kUnspecified if no integer dtype has all values of both.
DType PromoteIntegers(DType a, DType b) {
  if (IsUnsigned(a) == IsUnsigned(b)) return SizeOf(a) > SizeOf(b) ? a : b;
  const DType of_unsigned = IsUnsigned(a) ? a : b;
  const DType of_signed = IsUnsigned(a) ? b : a;
  if (SizeOf(of_signed) > SizeOf(of_unsigned)) return of_signed;
  switch (of_unsigned) {
    case DType::kUInt8:
      return DType::kInt16;
    case DType::kUInt16:
      return DType::kInt32;
    case DType::kUInt32:
      return DType::kInt64;
    default:
      return DType::kUnspecified;
  }
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
    case DType::kInt16:
      return "int16";
    case DType::kUInt16:
      return "uint16";
    case DType::kUInt32:
      return "uint32";
    case DType::kUInt64:
      return "uint64";
    case DType::kComplex64:
      return "complex64";
    case DType::kComplex128:
      return "complex128";
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
  if (IsInteger(a) && IsInteger(b)) {
    const DType promoted = PromoteIntegers(a, b);
    if (IsValid(promoted)) return promoted;
    return absl::InvalidArgumentError(absl::StrCat(
        DTypeName(a), " and ", DTypeName(b),
        " don't promote to one dtype: no integer dtype has all values of both; cast one first, "
        "for example uint64 to int64"));
  }
  if (IsFloating(a) && IsFloating(b)) return PromoteFloats(a, b);
  if (IsComplex(a) || IsComplex(b)) {
    return absl::InvalidArgumentError(absl::StrCat(
        DTypeName(a), " and ", DTypeName(b),
        " don't promote to one dtype: complex dtypes can't be cast; use tensors of one dtype"));
  }
  const DType lower = KindOf(a) < KindOf(b) ? a : b;
  const DType higher = KindOf(a) < KindOf(b) ? b : a;
  return absl::InvalidArgumentError(absl::StrCat(
      DTypeName(a), " and ", DTypeName(b),
      " don't promote to one dtype: they are of different kinds (", KindName(a), " and ",
      KindName(b), "); cast one first, for example ", DTypeName(lower), " to ", DTypeName(higher)));
}

}  // namespace tensord
