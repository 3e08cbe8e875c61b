#include "tensord/common/dtype.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <set>
#include <string>

namespace tensord {
namespace {

using testing::HasSubstr;

// "Type promotion rules" of the Python array API standard 2023.12. Rows and columns are in the
// order of kAllDTypes. "-" means that the standard defines no rule. The rules for uint8 with int8
// (int16 in the standard) and for bfloat16 are our own.
constexpr const char* kPromotion[9][9] = {
    // bool  u1    i1    i4    i8    f2    bf    f4    f8
    {"b", "-", "-", "-", "-", "-", "-", "-", "-"},      // bool
    {"-", "u1", "i4", "i4", "i8", "-", "-", "-", "-"},  // uint8
    {"-", "i4", "i1", "i4", "i8", "-", "-", "-", "-"},  // int8
    {"-", "i4", "i4", "i4", "i8", "-", "-", "-", "-"},  // int32
    {"-", "i8", "i8", "i8", "i8", "-", "-", "-", "-"},  // int64
    {"-", "-", "-", "-", "-", "f2", "f4", "f4", "f8"},  // float16
    {"-", "-", "-", "-", "-", "f4", "bf", "f4", "f8"},  // bfloat16
    {"-", "-", "-", "-", "-", "f4", "f4", "f4", "f8"},  // float32
    {"-", "-", "-", "-", "-", "f8", "f8", "f8", "f8"},  // float64
};
constexpr const char* kShort[9] = {"b", "u1", "i1", "i4", "i8", "f2", "bf", "f4", "f8"};

TEST(DType, PromotesByTheTable) {
  for (int i = 0; i < 9; ++i) {
    for (int j = 0; j < 9; ++j) {
      const absl::StatusOr<DType> promoted = PromoteTypes(kAllDTypes[i], kAllDTypes[j]);
      const std::string got =
          promoted.ok() ? kShort[static_cast<int>(*promoted) - 1] : std::string("-");
      EXPECT_EQ(got, kPromotion[i][j]) << DTypeName(kAllDTypes[i]) << DTypeName(kAllDTypes[j]);
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
    EXPECT_EQ(IsBool(dtype) + IsInteger(dtype) + IsFloating(dtype), 1);
    EXPECT_TRUE(IsValid(dtype));
  }
  EXPECT_EQ(sizes, 1 + 1 + 1 + 4 + 8 + 2 + 2 + 4 + 8);
  EXPECT_FALSE(IsValid(DType::kUnspecified));
  EXPECT_FALSE(IsValid(static_cast<DType>(10)));
}

}  // namespace
}  // namespace tensord
