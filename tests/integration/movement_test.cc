// The functions of client/movement.h, and slices with negative steps.
#include <cmath>
#include <cstdint>
#include <vector>

#include "tensord/tests/expect_error.h"
#include "tensord/tests/integration/client_fixture.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

class MovementTest : public ClientFixture {
 protected:
  // 0, 1, 2, … in this shape.
  Tensor Numbers(const Shape& shape) {
    return Reshape(Arange(first_, shape.num_elements(), {.dtype = DType::kInt32}), shape);
  }
  std::vector<int32_t> Read(const Tensor& x) {
    auto values = x.Read<int32_t>();
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? *std::move(values) : std::vector<int32_t>{};
  }
};

TEST_F(MovementTest, SliceGoesBackwards) {
  const Tensor x = Numbers({6});
  EXPECT_THAT(Read(Slice(x, {kToEnd}, {kToBegin}, {.steps = {-1}})), ElementsAre(5, 4, 3, 2, 1, 0));
  EXPECT_THAT(Read(Slice(x, {4}, {0}, {.steps = {-2}})), ElementsAre(4, 2));
  EXPECT_THAT(Read(Slice(x, {-1}, {-1}, {.steps = {-1}})), ElementsAre());
}

TEST_F(MovementTest, FlipReversesTheAxes) {
  const Tensor x = Numbers({2, 3});
  EXPECT_THAT(Read(Flip(x)), ElementsAre(5, 4, 3, 2, 1, 0));
  EXPECT_THAT(Read(Flip(x, {0})), ElementsAre(3, 4, 5, 0, 1, 2));
  EXPECT_THAT(Read(Flip(x, {-1})), ElementsAre(2, 1, 0, 5, 4, 3));
  EXPECT_THAT(Read(Flip(Numbers({}))), ElementsAre(0));
  EXPECT_EQ(Flip(Numbers({0, 3})).shape(), Shape({0, 3}));
  EXPECT_THAT(std::string(Flip(x, {2}).status().message()), HasSubstr("out of range"));
  EXPECT_THAT(std::string(Flip(x, {0, -2}).status().message()), HasSubstr("twice"));
}

TEST_F(MovementTest, RollMovesElementsAroundTheEnd) {
  const Tensor x = Numbers({2, 3});
  EXPECT_THAT(Read(Roll(x, 1, 1)), ElementsAre(2, 0, 1, 5, 3, 4));
  EXPECT_THAT(Read(Roll(x, -1, -1)), ElementsAre(1, 2, 0, 4, 5, 3));
  EXPECT_THAT(Read(Roll(x, 7, 0)), ElementsAre(3, 4, 5, 0, 1, 2));
  EXPECT_THAT(Read(Roll(x, 6, 1)), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(Read(Roll(x, INT64_MIN, 1)), ElementsAre(2, 0, 1, 5, 3, 4)) << "-2^63 mod 3 is 1";
  EXPECT_THAT(Read(Roll(x, {1, 1}, {0, 1})), ElementsAre(5, 3, 4, 2, 0, 1));
  EXPECT_THAT(Read(Roll(x, {2})), ElementsAre(4, 5, 0, 1, 2, 3)) << "as one axis";
  EXPECT_EQ(Roll(Numbers({2, 0}), 1, 1).shape(), Shape({2, 0}));
  EXPECT_THAT(std::string(Roll(x, 1, 2).status().message()), HasSubstr("roll"));
  EXPECT_THAT(std::string(Roll(x, {1, 2}, {0}).status().message()), HasSubstr("2 shifts"));
}

TEST_F(MovementTest, TrilAndTriuKeepATriangle) {
  const Tensor x = Numbers({2, 3}) + 1;
  EXPECT_THAT(Read(Tril(x)), ElementsAre(1, 0, 0, 4, 5, 0));
  EXPECT_THAT(Read(Tril(x, 1)), ElementsAre(1, 2, 0, 4, 5, 6));
  EXPECT_THAT(Read(Tril(x, -1)), ElementsAre(0, 0, 0, 4, 0, 0));
  EXPECT_THAT(Read(Triu(x)), ElementsAre(1, 2, 3, 0, 5, 6));
  EXPECT_THAT(Read(Triu(x, 1)), ElementsAre(0, 2, 3, 0, 0, 6));
  EXPECT_THAT(Read(Triu(x, -5)), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(Read(Tril(Numbers({2, 2, 2}) + 1)), ElementsAre(1, 0, 3, 4, 5, 0, 7, 8));
  for (const DType dtype : {DType::kBool, DType::kFloat16, DType::kInt64}) {
    EXPECT_EQ(Tril(x.To(dtype)).dtype(), dtype);
    EXPECT_TRUE(Tril(x.To(dtype)).Wait().ok());
  }
  EXPECT_THAT(std::string(Tril(Numbers({3})).status().message()), HasSubstr("two axes"));
}

TEST_F(MovementTest, EyeHasAnyDiagonal) {
  EXPECT_THAT(*Eye(first_, 2, 3).Read<float>(), ElementsAre(1, 0, 0, 0, 1, 0));
  EXPECT_THAT(*Eye(first_, 2, 3, 1).Read<float>(), ElementsAre(0, 1, 0, 0, 0, 1));
  EXPECT_THAT(*Eye(first_, 2, 3, -1).Read<float>(), ElementsAre(0, 0, 0, 1, 0, 0));
  EXPECT_THAT(*Eye(first_, 2, {.k = 2}).Read<float>(), ElementsAre(0, 0, 0, 0));
}

TEST_F(MovementTest, UnsqueezeSqueezeAndFlattenChangeTheShape) {
  const Tensor x = Zeros(first_, {2, 1, 3});
  EXPECT_EQ(Unsqueeze(x, 0).shape(), Shape({1, 2, 1, 3}));
  EXPECT_EQ(Unsqueeze(x, -1).shape(), Shape({2, 1, 3, 1}));
  EXPECT_EQ(Squeeze(x).shape(), Shape({2, 3}));
  EXPECT_EQ(Squeeze(x, {0}).shape(), x.shape()) << "an axis of another size stays";
  EXPECT_EQ(Squeeze(x, {-2}).shape(), Shape({2, 3}));
  EXPECT_EQ(Flatten(x).shape(), Shape({6}));
  EXPECT_EQ(Flatten(x, 1).shape(), Shape({2, 3}));
  EXPECT_EQ(Flatten(x, 0, 1).shape(), Shape({2, 3}));
  EXPECT_EQ(Flatten(FromScalar(first_, 1.0)).shape(), Shape({1}));
  ExpectError(Unsqueeze(x, 4).status(), Code::kInvalidArgument, {"unsqueeze", "4"});
  ExpectError(Squeeze(x, {3}).status(), Code::kInvalidArgument, {"squeeze", "3"});
  ExpectError(Flatten(x, 2, 1).status(), Code::kInvalidArgument, {"flatten", "after"});
}

TEST_F(MovementTest, SelectRemovesAnAxisAndStackAddsOne) {
  const Tensor x = Reshape(Arange(first_, 6), {2, 3});
  EXPECT_THAT(*Select(x, 0, -1).Read<int64_t>(), ElementsAre(3, 4, 5));
  EXPECT_THAT(*Select(x, 1, 2).Read<int64_t>(), ElementsAre(2, 5));
  const Tensor y = Stack({Select(x, 0, 0), Select(x, 0, 1)}, -1);
  EXPECT_EQ(y.shape(), Shape({3, 2}));
  EXPECT_THAT(*y.Read<int64_t>(), ElementsAre(0, 3, 1, 4, 2, 5));
  ExpectError(Select(x, 1, 3).status(), Code::kInvalidArgument, {"select", "3", "out of range"});
  ExpectError(Stack({}).status(), Code::kInvalidArgument, {"stack"});
  ExpectError(Stack({x, Select(x, 0, 0)}).status(), Code::kInvalidArgument, {"stack", "[2, 3]"});
}

TEST_F(MovementTest, MaskedSelectReturnsTheElementsWhereTheMaskIsTrue) {
  const Tensor x = Reshape(Arange(first_, 6), {2, 3});
  EXPECT_THAT(*MaskedSelect(x, Gt(x, 2)).Read<int64_t>(), ElementsAre(3, 4, 5));
  EXPECT_THAT(*MaskedSelect(x, Eq(Arange(first_, 3), 1)).Read<int64_t>(), ElementsAre(1, 4));
  EXPECT_EQ(MaskedSelect(x, Gt(x, 9)).shape(), Shape({0}));
  ExpectError(MaskedSelect(x, x).status(), Code::kInvalidArgument, {"masked_select", "bool"});
}

TEST_F(MovementTest, UniqueCountsEachValueAndFindsItsElements) {
  const Tensor x = FromVector<float>(first_, {2, 3}, {3, 1, 3, 2, 1, 3});
  const UniqueResult result = Unique(x);
  EXPECT_THAT(*result.values.Read<float>(), ElementsAre(1, 2, 3));
  EXPECT_THAT(*result.counts.Read<int64_t>(), ElementsAre(2, 1, 3));
  EXPECT_EQ(result.inverse.shape(), x.shape());
  EXPECT_THAT(*result.inverse.Read<int64_t>(), ElementsAre(2, 0, 2, 1, 0, 2));
  EXPECT_EQ(Unique(Zeros(first_, {0})).values.shape(), Shape({0}));
  EXPECT_EQ(Unique(FromVector<float>(first_, {NAN, NAN})).values.shape(), Shape({2}));
}

}  // namespace
}  // namespace tensord::integration
