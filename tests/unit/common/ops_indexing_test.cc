#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tensord/tests/unit/common/plan.h"

namespace tensord {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Attributes Axis(int64_t axis) { return {{"axis", axis}}; }

TEST(IndexInference, PutsTheIndicesShapeInPlaceOfTheAxes) {
  EXPECT_EQ(Result("index", {F32({5, 6, 7}), I64({2, 3})}), "float32[2, 3, 6, 7]");
  EXPECT_EQ(Result("index", {F32({5, 6, 7}), I64({2, 1}), I64({4})}, Axis(1)), "float32[5, 2, 4]");
  EXPECT_EQ(Result("index", {F32({5, 6, 7}), I64({})}, Axis(-1)), "float32[5, 6]");
  EXPECT_EQ(Result("index", {F32({0, 6}), I64({0})}), "float32[0, 6]");
  EXPECT_EQ(NormalForm("index", {F32({5, 6}), I64({2})}, Axis(-1)).Int("axis"), 1);
}

TEST(IndexInference, RejectsInvalidArguments) {
  EXPECT_THAT(Result("index", {F32({}), I64({1})}), HasSubstr("a scalar has no axis"));
  EXPECT_THAT(Result("index", {F32({5}), F32({1})}), HasSubstr("int32 or int64, not float32"));
  EXPECT_THAT(Result("index", {F32({5}), I64({1}), I64({1})}), HasSubstr("need 2 dimensions"));
  EXPECT_THAT(Result("index", {F32({5, 0}), I64({3}), I64({3})}),
              HasSubstr("axis 1 has size 0, so it has no element for any of the 3 indices"));
  const Shape wide{int64_t{1} << 40};
  EXPECT_THAT(Result("index", {F32({int64_t{1} << 20, 4}), I64(wide), I64({1})}),
              HasSubstr("float32[1099511627776]"));
  EXPECT_THAT(Result("index", {F32({2, int64_t{1} << 40}), I64({int64_t{1} << 20})}),
              HasSubstr("2^48"));
  EXPECT_THAT(Result("index", {F32({2, 2}), I64({int64_t{1} << 40, 1}), I64({int64_t{1} << 40})}),
              HasSubstr("2^48"));
}

TEST(ScatterInference, ChecksShapesAndDTypes) {
  const TensorSpec x = F32({4, 6}), i = I64({4, 3});
  EXPECT_EQ(Result("scatter", {x, i, F32({5, 3})}), "float32[4, 6]");
  EXPECT_EQ(Result("scatter", {x, i, F32({})}, Axis(1)), "float32[4, 6]");
  EXPECT_EQ(Result("scatter", {x, I64({0, 3}), F32({0, 3})}), "float32[4, 6] alias");
  EXPECT_THAT(Result("scatter", {x, i, F32({3, 3})}), HasSubstr("at least that of the indices"));
  EXPECT_THAT(Result("scatter", {x, i, I64({4, 3})}), HasSubstr("must have the dtype of input 0"));
  EXPECT_THAT(Result("scatter", {x, I64({4, 7}), F32({4, 7})}), HasSubstr("only axis 0 may be"));
  EXPECT_THAT(Result("gather", {x, I64({4})}), HasSubstr("2 and 1 dimensions"));
  EXPECT_THAT(Result("index_put", {x, I64({3}), F32({3})}), HasSubstr("[3, 6], or be a scalar"));
  EXPECT_EQ(Result("index_put", {x, I64({0}), F32({0, 6})}), "float32[4, 6] alias");
}

std::string AsStrided(Shape from, Ints shape, Ints strides, int64_t offset = 0) {
  return Result("as_strided", {F32(std::move(from))},
                {{"shape", shape}, {"strides", strides}, {"offset", offset}});
}

TEST(AsStridedInference, ChecksTheBoundsWithoutOverflow) {
  EXPECT_EQ(AsStrided({24}, {4, 3}, {-2, 1}, 6), "float32[4, 3]");
  EXPECT_THAT(AsStrided({24}, {4, 3}, {-2, 1}, 5), HasSubstr("from element -1 to 7"));
  EXPECT_THAT(AsStrided({24}, {25}, {1}), HasSubstr("from element 0 to 24, and input 0 has 24"));
  EXPECT_THAT(AsStrided({24}, {2, 2}, {kMax, kMin}), HasSubstr("reaches from element"));
  EXPECT_THAT(AsStrided({24}, {2}, {1}, kMax), HasSubstr("reaches from element"));
  EXPECT_THAT(AsStrided({24}, {int64_t{1} << 40, 256}, {kMin, kMax}),
              AllOf(HasSubstr("from element -9223372036854775808 to 9223372036854775807")));
  EXPECT_THAT(AsStrided({0}, {1}, {1}), HasSubstr("input 0 has 0 elements"));
  EXPECT_THAT(AsStrided({24}, {2, 2}, {1}), HasSubstr("both need the same number"));
}

TEST(AsStridedInference, IgnoresWhatDoesNotMatter) {
  EXPECT_EQ(AsStrided({0}, {0, 5}, {kMin, kMax}, 77), "float32[0, 5]");
  const Attributes attrs =
      NormalForm("as_strided", {F32({24})},
                 {{"shape", Ints{1, 3}}, {"strides", Ints{kMax, 2}}, {"offset", int64_t{1}}});
  EXPECT_THAT(attrs.Ints("strides"), ElementsAre(0, 2));
}

TEST(AsStridedInference, IsAnAliasOfAnAlignedRange) {
  EXPECT_EQ(AsStrided({64}, {4, 4}, {4, 1}, 16), "float32[4, 4] alias");
  EXPECT_EQ(AsStrided({64}, {4, 4}, {4, 1}, 15), "float32[4, 4]");
  EXPECT_EQ(AsStrided({64}, {4, 4}, {1, 4}, 16), "float32[4, 4]");
}

std::string AsStridedScatter(Ints shape, Ints strides) {
  return Result("as_strided_scatter", {F32({24}), F32(Shape(shape))},
                {{"shape", shape}, {"strides", strides}, {"offset", int64_t{8}}});
}

TEST(AsStridedScatterInference, RefusesElementsThatMayBeTheSame) {
  EXPECT_EQ(AsStridedScatter({3, 4}, {4, 1}), "float32[24]");
  EXPECT_EQ(AsStridedScatter({4, 3}, {1, -4}), "float32[24]");
  EXPECT_EQ(AsStridedScatter({0}, {0}), "float32[24] alias");
  EXPECT_THAT(AsStridedScatter({3, 4}, {3, 1}), HasSubstr("may have the same place"));
  EXPECT_THAT(AsStridedScatter({2}, {0}), HasSubstr("may have the same place"));
  EXPECT_THAT(AsStridedScatter({2, 2}, {1, -1}), HasSubstr("may have the same place"));
}

std::string Bitcast(TensorSpec from, DType to) {
  return Result("bitcast", {from}, {{"dtype", to}});
}

TEST(BitcastInference, ScalesTheLastDimension) {
  EXPECT_EQ(Bitcast(F32({3, 4}), DType::kFloat64), "float64[3, 2] alias");
  EXPECT_EQ(Bitcast(F32({3, 4}), DType::kUInt8), "uint8[3, 16] alias");
  EXPECT_EQ(Bitcast(F32({}), DType::kInt32), "int32[] alias");
  EXPECT_EQ(Bitcast(F32({3, 0}), DType::kInt64), "int64[3, 0] alias");
  EXPECT_THAT(Bitcast(F32({}), DType::kInt64), HasSubstr("reshape it to [1] first"));
  EXPECT_THAT(Bitcast(F32({2, 3}), DType::kInt64), HasSubstr("has 12 bytes"));
  EXPECT_THAT(Bitcast(I64({int64_t{1} << 47}), DType::kUInt8), HasSubstr("2^48"));
}

}  // namespace
}  // namespace tensord
