#include "tensord/common/dtype.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"

namespace tensord {
namespace {

using testing::HasSubstr;

// "Type promotion rules" of the Python array API standard 2023.12. Rows and columns are in the
// order of kAllDTypes. "-" means an error: the standard defines no rule, or, for complex dtypes,
// there is no complex arithmetic. The rules for bfloat16 are our own.
constexpr int kCount = 15;
constexpr const char* kPromotion[kCount] = {
    "b  -  -  -  -  -  -  -  -  -  -  -  -  -  -",    // bool
    "-  u1 i2 i4 i8 -  -  -  -  i2 u2 u4 u8 -  -",    // uint8
    "-  i2 i1 i4 i8 -  -  -  -  i2 i4 i8 -  -  -",    // int8
    "-  i4 i4 i4 i8 -  -  -  -  i4 i4 i8 -  -  -",    // int32
    "-  i8 i8 i8 i8 -  -  -  -  i8 i8 i8 -  -  -",    // int64
    "-  -  -  -  -  f2 f4 f4 f8 -  -  -  -  -  -",    // float16
    "-  -  -  -  -  f4 bf f4 f8 -  -  -  -  -  -",    // bfloat16
    "-  -  -  -  -  f4 f4 f4 f8 -  -  -  -  -  -",    // float32
    "-  -  -  -  -  f8 f8 f8 f8 -  -  -  -  -  -",    // float64
    "-  i2 i2 i4 i8 -  -  -  -  i2 i4 i8 -  -  -",    // int16
    "-  u2 i4 i4 i8 -  -  -  -  i4 u2 u4 u8 -  -",    // uint16
    "-  u4 i8 i8 i8 -  -  -  -  i8 u4 u4 u8 -  -",    // uint32
    "-  u8 -  -  -  -  -  -  -  -  u8 u8 u8 -  -",    // uint64
    "-  -  -  -  -  -  -  -  -  -  -  -  -  c8 -",    // complex64
    "-  -  -  -  -  -  -  -  -  -  -  -  -  -  c16",  // complex128
};
constexpr const char* kShort[kCount] = {"b",  "u1", "i1", "i4", "i8", "f2", "bf", "f4",
                                        "f8", "i2", "u2", "u4", "u8", "c8", "c16"};

TEST(DType, PromotesByTheTable) {
  for (int i = 0; i < kCount; ++i) {
    const std::vector<std::string> row = absl::StrSplit(kPromotion[i], ' ', absl::SkipEmpty());
    ASSERT_EQ(row.size(), size_t{kCount});
    for (int j = 0; j < kCount; ++j) {
      const absl::StatusOr<DType> promoted = PromoteTypes(kAllDTypes[i], kAllDTypes[j]);
      const std::string got =
          promoted.ok() ? kShort[static_cast<int>(*promoted) - 1] : std::string("-");
      EXPECT_EQ(got, row[j]) << DTypeName(kAllDTypes[i]) << DTypeName(kAllDTypes[j]);
    }
  }
}

TEST(DType, SaysWhatToCastWhenKindsDiffer) {
  const absl::Status status = PromoteTypes(DType::kFloat32, DType::kInt64).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("float32 and int64"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("int64 to float32"));
  EXPECT_FALSE(PromoteTypes(DType::kUnspecified, DType::kUnspecified).ok());
  EXPECT_FALSE(PromoteTypes(DType::kFloat32, static_cast<DType>(200)).ok());
}

TEST(DType, SaysWhatToCastForUint64AndASignedInteger) {
  for (DType dtype : {DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64}) {
    const absl::Status status = PromoteTypes(dtype, DType::kUInt64).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("cast one first"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(DTypeName(dtype))));
  }
}

// The numbers of the dtypes don't follow the kinds: uint16 is above float32.
TEST(DType, SuggestsACastToTheHigherKind) {
  const absl::Status status = PromoteTypes(DType::kFloat32, DType::kUInt16).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("uint16 to float32"));
  const absl::Status of_bool = PromoteTypes(DType::kUInt64, DType::kBool).status();
  EXPECT_THAT(std::string(of_bool.message()), HasSubstr("bool to uint64"));
}

TEST(DType, NamesAreUnique) {
  std::set<std::string> names;
  for (DType dtype : kAllDTypes) names.insert(std::string(DTypeName(dtype)));
  EXPECT_EQ(names.size(), std::size(kAllDTypes));
  EXPECT_FALSE(names.contains("unspecified"));
  EXPECT_EQ(std::string(DTypeName(static_cast<DType>(99))), "unspecified");
}

TEST(DType, SizesAndKinds) {
  int64_t sizes = 0;
  for (DType dtype : kAllDTypes) {
    sizes += SizeOf(dtype);
    EXPECT_EQ(IsBool(dtype) + IsInteger(dtype) + IsFloating(dtype) + IsComplex(dtype), 1);
    EXPECT_EQ(SizeOf(dtype), SizeOf(RealDTypeOf(dtype)) * (IsComplex(dtype) ? 2 : 1));
    EXPECT_TRUE(IsValid(dtype));
  }
  EXPECT_EQ(sizes, 1 + 1 + 1 + 4 + 8 + 2 + 2 + 4 + 8 + 2 + 2 + 4 + 8 + 8 + 16);
  EXPECT_EQ(std::size(kRealDTypes) + 2, std::size(kAllDTypes));
  for (DType dtype : {DType::kUnspecified, static_cast<DType>(16), static_cast<DType>(255)}) {
    EXPECT_FALSE(IsValid(dtype));
    EXPECT_FALSE(IsBool(dtype) || IsInteger(dtype) || IsFloating(dtype) || IsComplex(dtype));
  }
}

}  // namespace
}  // namespace tensord
