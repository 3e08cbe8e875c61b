#include "tensord/common/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tensord/common/tensor_spec.h"

namespace tensord {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Broadcast(const Shape& a, const Shape& b) {
  const absl::StatusOr<Shape> shape = BroadcastShapes(a, b);
  return shape.ok() ? shape->ToString() : std::string(shape.status().message());
}

TEST(Shape, PrintsLikePyTorch) {
  EXPECT_EQ(Shape({2, 3}).ToString(), "[2, 3]");
  EXPECT_EQ(Shape().ToString(), "[]");
  EXPECT_EQ((TensorSpec{DType::kBFloat16, {0}}).ToString(), "bfloat16[0]");
}

TEST(Shape, ValidatesAtTheLimits) {
  EXPECT_TRUE(Shape().Validate().ok());
  EXPECT_TRUE(Shape({0, 5}).Validate().ok());
  EXPECT_TRUE(Shape({kMaxElements}).Validate().ok());
  EXPECT_TRUE(Shape({1 << 24, 1 << 24}).Validate().ok());
  EXPECT_TRUE(Shape(Dims(kMaxRank, 1)).Validate().ok());
  EXPECT_FALSE(Shape({kMaxElements + 1}).Validate().ok());
}

TEST(Shape, ErrorsNameTheNumber) {
  const auto message = [](const Shape& shape) {
    EXPECT_EQ(shape.Validate().code(), absl::StatusCode::kInvalidArgument);
    return std::string(shape.Validate().message());
  };
  EXPECT_THAT(message({2, -3}), HasSubstr("-3"));
  EXPECT_THAT(message({std::numeric_limits<int64_t>::min()}), HasSubstr("negative"));
  EXPECT_THAT(message(Shape(Dims(kMaxRank + 1, 1))), AllOf(HasSubstr("33"), HasSubstr("32")));
  EXPECT_THAT(message({int64_t{1} << 40, int64_t{1} << 40}), HasSubstr("281474976710656"));
  EXPECT_THAT(message({int64_t{1} << 62, 4, 0}), HasSubstr("281474976710656"));
  EXPECT_THAT(message(Shape(Dims(32, int64_t{1} << 62))), HasSubstr("2^48"));
  EXPECT_LT(message(Shape(Dims(1000000, 7))).size(), 400u);
}

TEST(Shape, SpecNeedsADType) {
  EXPECT_TRUE((TensorSpec{DType::kInt8, {3}}).Validate().ok());
  EXPECT_FALSE((TensorSpec{DType::kUnspecified, {3}}).Validate().ok());
  EXPECT_FALSE((TensorSpec{static_cast<DType>(77), {3}}).Validate().ok());
  EXPECT_FALSE((TensorSpec{DType::kInt8, {-1}}).Validate().ok());
  EXPECT_EQ((TensorSpec{DType::kFloat64, {2, 3}}).size_bytes(), 48);
}

TEST(Shape, BroadcastsLikeNumPy) {
  EXPECT_EQ(Broadcast({}, {}), "[]");
  EXPECT_EQ(Broadcast({}, {2, 3}), "[2, 3]");
  EXPECT_EQ(Broadcast({2, 3}, {3}), "[2, 3]");
  EXPECT_EQ(Broadcast({3}, {2, 1}), "[2, 3]");
  EXPECT_EQ(Broadcast({2, 1, 4}, {3, 1}), "[2, 3, 4]");
  EXPECT_EQ(Broadcast({1}, {0}), "[0]");
  EXPECT_EQ(Broadcast({5, 0}, {1, 1}), "[5, 0]");
}

TEST(Shape, BroadcastRefusalNamesShapesAndSizes) {
  EXPECT_THAT(Broadcast({2, 3}, {4}), AllOf(HasSubstr("[2, 3] and [4]"), HasSubstr("3 and 4")));
  EXPECT_THAT(Broadcast({4}, {2, 3}), AllOf(HasSubstr("[4] and [2, 3]"), HasSubstr("4 and 3")));
  EXPECT_THAT(Broadcast({0}, {3}), HasSubstr("0 and 3"));
  EXPECT_THAT(Broadcast({2, 3}, {4, 3}), HasSubstr("dimension -2"));
}

TEST(Shape, ComputesStrides) {
  EXPECT_THAT(RowMajorStrides({4, 3, 2}), ElementsAre(6, 2, 1));
  EXPECT_TRUE(RowMajorStrides({}).empty());
  EXPECT_THAT(BroadcastStrides({3, 1}, {2, 3, 4}), ElementsAre(0, 1, 0));
  EXPECT_THAT(BroadcastStrides({}, {2, 2}), ElementsAre(0, 0));
  EXPECT_THAT(BroadcastStrides({2, 3}, {2, 3}), ElementsAre(3, 1));
}

TEST(Shape, NormalizesAxes) {
  EXPECT_EQ(NormalizeAxis(-1, 3).value(), 2);
  EXPECT_EQ(NormalizeAxis(-3, 3).value(), 0);
  EXPECT_EQ(NormalizeAxis(2, 3).value(), 2);
  for (int64_t axis : {int64_t{3}, int64_t{-4}, std::numeric_limits<int64_t>::min(),
                       std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(std::string(NormalizeAxis(axis, 3).status().message()), HasSubstr("-3 to 2"));
  }
  EXPECT_THAT(std::string(NormalizeAxis(0, 0).status().message()), HasSubstr("scalar"));
}

}  // namespace
}  // namespace tensord
