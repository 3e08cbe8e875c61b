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
};

inline constexpr DType kAllDTypes[] = {DType::kBool,     DType::kUInt8,   DType::kInt8,
                                       DType::kInt32,    DType::kInt64,   DType::kFloat16,
                                       DType::kBFloat16, DType::kFloat32, DType::kFloat64};

// Bytes of one element; 0 for kUnspecified and for values outside the enum.
constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8:
      return 1;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kInt32:
    case DType::kFloat32:
      return 4;
    case DType::kInt64:
    case DType::kFloat64:
      return 8;
    case DType::kUnspecified:
      break;
  }
  return 0;
}

constexpr bool IsValid(DType dtype) { return SizeOf(dtype) != 0; }
constexpr bool IsBool(DType dtype) { return dtype == DType::kBool; }
constexpr bool IsInteger(DType dtype) {
  return dtype == DType::kUInt8 || dtype == DType::kInt8 || dtype == DType::kInt32 ||
         dtype == DType::kInt64;
}
constexpr bool IsFloating(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat32 ||
         dtype == DType::kFloat64;
}

// "float32", "int64", "bool", …; "unspecified" for kUnspecified and values outside the enum.
absl::string_view DTypeName(DType dtype);

// Returns the dtype to which two operands are promoted: the table of the Python array API standard
// (2023.12, "Type promotion rules"), within one kind (bool, integer or floating).
// tensord has two more rules. int8 with uint8 gives int32, because there is no int16. bfloat16,
// which the standard lacks, gives float32 with float16, and otherwise behaves like float16. For
// operands of two kinds, which the standard leaves undefined, returns INVALID_ARGUMENT.
absl::StatusOr<DType> PromoteTypes(DType a, DType b);

template <typename Sink>
void AbslStringify(Sink& sink, DType dtype) {
  sink.Append(DTypeName(dtype));
}

}  // namespace tensord
