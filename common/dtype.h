// Element types, their names and sizes, and the promotion table.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tensord {

// The numbers are those of tensord.v1.DType and never change.
enum class DType : uint8_t {
  kUnspecified = 0,
  kBool = 1,  // one byte; zero is false, anything else true; results are always 0 or 1
  kUInt8 = 2,
  kInt8 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat16 = 6,   // IEEE 754 binary16
  kBFloat16 = 7,  // upper half of a binary32
  kFloat32 = 8,
  kFloat64 = 9,
  kInt16 = 10,
  kUInt16 = 11,
  kUInt32 = 12,
  kUInt64 = 13,
  kComplex64 = 14,   // the real part, then the imaginary part, each a float32
  kComplex128 = 15,  // the real part, then the imaginary part, each a float64
};

inline constexpr DType kAllDTypes[] = {
    DType::kBool,    DType::kUInt8,    DType::kInt8,    DType::kInt32,     DType::kInt64,
    DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64,   DType::kInt16,
    DType::kUInt16,  DType::kUInt32,   DType::kUInt64,  DType::kComplex64, DType::kComplex128};

// All dtypes except the complex ones.
inline constexpr DType kRealDTypes[] = {
    DType::kBool,    DType::kUInt8,    DType::kInt8,    DType::kInt32,   DType::kInt64,
    DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kInt16,
    DType::kUInt16,  DType::kUInt32,   DType::kUInt64};

// The size of a table that is indexed by the number of a dtype.
inline constexpr int kDTypeTableSize = static_cast<int>(DType::kComplex128) + 1;

// Returns the bytes of one element. For kUnspecified and values outside the enum, returns 0.
constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8:
      return 1;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kInt16:
    case DType::kUInt16:
      return 2;
    case DType::kInt32:
    case DType::kUInt32:
    case DType::kFloat32:
      return 4;
    case DType::kInt64:
    case DType::kUInt64:
    case DType::kFloat64:
    case DType::kComplex64:
      return 8;
    case DType::kComplex128:
      return 16;
    case DType::kUnspecified:
      break;
  }
  return 0;
}

constexpr bool IsValid(DType dtype) { return SizeOf(dtype) != 0; }

// The kinds, from the lowest to the highest. The numbers of DType don't have this order.
enum class DTypeKind : uint8_t { kBool, kInteger, kFloating, kComplex };

// Returns the kind of a valid dtype.
constexpr DTypeKind KindOf(DType dtype) {
  switch (dtype) {
    case DType::kUnspecified:
    case DType::kBool:
      return DTypeKind::kBool;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat32:
    case DType::kFloat64:
      return DTypeKind::kFloating;
    case DType::kComplex64:
    case DType::kComplex128:
      return DTypeKind::kComplex;
    default:
      return DTypeKind::kInteger;
  }
}

// Return false for kUnspecified and for values outside the enum.
constexpr bool IsBool(DType dtype) { return dtype == DType::kBool; }
constexpr bool IsInteger(DType dtype) {
  return IsValid(dtype) && KindOf(dtype) == DTypeKind::kInteger;
}
constexpr bool IsFloating(DType dtype) { return KindOf(dtype) == DTypeKind::kFloating; }
constexpr bool IsComplex(DType dtype) { return KindOf(dtype) == DTypeKind::kComplex; }
constexpr bool IsUnsigned(DType dtype) {
  return dtype == DType::kUInt8 || dtype == DType::kUInt16 || dtype == DType::kUInt32 ||
         dtype == DType::kUInt64;
}

// Returns the dtype of the two parts of a complex dtype. Returns any other dtype unchanged.
constexpr DType RealDTypeOf(DType dtype) {
  return dtype == DType::kComplex64    ? DType::kFloat32
         : dtype == DType::kComplex128 ? DType::kFloat64
                                       : dtype;
}

// Returns "float32", "int64", "bool", …. For kUnspecified and values outside the enum, returns
// "unspecified".
absl::string_view DTypeName(DType dtype);

// Returns the dtype to which two operands are promoted: the table of the Python array API standard
// (2023.12, "Type promotion rules"), within one kind (bool, integer or floating). tensord has one
// more rule: bfloat16, which the standard lacks, gives float32 with float16, and otherwise behaves
// like float16.
//
// Returns INVALID_ARGUMENT that says what to cast, for operands of two kinds, and for uint64 with a
// signed integer. Also returns INVALID_ARGUMENT for a complex dtype with any other dtype.
absl::StatusOr<DType> PromoteTypes(DType a, DType b);

template <typename Sink>
void AbslStringify(Sink& sink, DType dtype) {
  sink.Append(DTypeName(dtype));
}

}  // namespace tensord
