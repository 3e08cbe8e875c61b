#include "tensord/client/scalar.h"

#include <gtest/gtest.h>

#include <cstddef>

#include "tensord/client/internal/scalar_typing.h"

namespace tensord {
namespace {

using internal::PromotedDType;

TEST(ScalarTest, KeepsTheKindOfItsValue) {
  EXPECT_TRUE(Scalar(true).is_bool());
  EXPECT_TRUE(Scalar(1).is_int());
  EXPECT_TRUE(Scalar(size_t{3}).is_int());
  EXPECT_TRUE(Scalar(1.0f).is_float());
  EXPECT_EQ(std::get<int64_t>(Scalar(uint8_t{200}).value()), 200);
  EXPECT_EQ(std::get<int64_t>(Scalar(-5).value()), -5);
  EXPECT_EQ(std::get<double>(Scalar(0.5).value()), 0.5);
}

TEST(ScalarTest, UnsignedValueAboveInt64IsReal) {
  EXPECT_EQ(std::get<double>(Scalar(~uint64_t{0}).value()), 0x1p64);
}

TEST(ScalarTest, TakesTheDTypeOfATensorOfItsKindOrAHigherOne) {
  EXPECT_EQ(PromotedDType(DType::kFloat16, 2.5), DType::kFloat16);
  EXPECT_EQ(PromotedDType(DType::kFloat64, 2), DType::kFloat64);
  EXPECT_EQ(PromotedDType(DType::kBFloat16, true), DType::kBFloat16);
  EXPECT_EQ(PromotedDType(DType::kUInt8, 2), DType::kUInt8);
  EXPECT_EQ(PromotedDType(DType::kInt32, true), DType::kInt32);
  EXPECT_EQ(PromotedDType(DType::kBool, true), DType::kBool);
}

TEST(ScalarTest, HigherKindPromotesTheTensor) {
  EXPECT_EQ(PromotedDType(DType::kInt64, 2.0), DType::kFloat32);
  EXPECT_EQ(PromotedDType(DType::kUInt8, 0.5), DType::kFloat32);
  EXPECT_EQ(PromotedDType(DType::kBool, 3), DType::kInt64);
  EXPECT_EQ(PromotedDType(DType::kBool, 0.5), DType::kFloat32);
}

}  // namespace
}  // namespace tensord
