#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tensord/tests/unit/common/plan.h"

namespace tensord {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string Reshape(Shape from, Ints to) {
  return Result("reshape", {F32(std::move(from))}, {{"shape", std::move(to)}});
}

TEST(Reshape, IsAnAlias) {
  EXPECT_EQ(Reshape({2, 3}, {3, 2}), "float32[3, 2] alias");
  EXPECT_EQ(Reshape({2, 3}, {-1}), "float32[6] alias");
  EXPECT_EQ(Reshape({2, 3}, {3, -1, 1}), "float32[3, 2, 1] alias");
  EXPECT_EQ(Reshape({1}, {}), "float32[] alias");
  EXPECT_EQ(Reshape({}, {1, -1}), "float32[1, 1] alias");
  EXPECT_EQ(Reshape({0, 3}, {5, 0}), "float32[5, 0] alias");
  EXPECT_EQ(Reshape({0, 3}, {-1, 3}), "float32[0, 3] alias");
}

TEST(Reshape, RejectsInvalidArguments) {
  EXPECT_THAT(Reshape({2, 3}, {4, 2}), AllOf(HasSubstr("[4, 2] has 8"), HasSubstr("input has 6")));
  EXPECT_THAT(Reshape({2, 3}, {4, -1}), HasSubstr("doesn't divide 6"));
  EXPECT_THAT(Reshape({2, 3}, {-1, -1}), HasSubstr("more than one -1"));
  EXPECT_THAT(Reshape({2, 3}, {-2, 3}), HasSubstr("negative dimension -2"));
  EXPECT_THAT(Reshape({0, 3}, {-1, 0}), HasSubstr("is ambiguous"));
  EXPECT_THAT(Reshape({2, 3}, {-1, 0}), HasSubstr("is ambiguous"));
  EXPECT_THAT(Reshape({2, 3}, {int64_t{1} << 62, 4}), HasSubstr("2^48"));
  EXPECT_THAT(Reshape({2, 3}, {-1, int64_t{1} << 62, int64_t{1} << 62}), HasSubstr("2^48"));
  EXPECT_THAT(Reshape({1}, Ints(33, 1)), HasSubstr("limit is 32"));
}

std::string Permute(Shape shape, Ints axes) {
  return Result("permute", {F32(std::move(shape))}, {{"axes", std::move(axes)}});
}

TEST(Permute, MovesAxesAndAliasesIfNoElementMoves) {
  EXPECT_EQ(Permute({2, 3, 4}, {2, 0, 1}), "float32[4, 2, 3]");
  EXPECT_EQ(Permute({2, 3}, {-1, 0}), "float32[3, 2]");
  EXPECT_EQ(Permute({2, 3}, {0, 1}), "float32[2, 3] alias");
  EXPECT_EQ(Permute({2, 1, 3}, {1, 0, 2}), "float32[1, 2, 3] alias");
  EXPECT_EQ(Permute({0, 3}, {1, 0}), "float32[3, 0] alias");
  EXPECT_EQ(Permute({}, {}), "float32[] alias");
  EXPECT_THAT(NormalForm("permute", {F32({2, 3})}, {{"axes", Ints{-1, -2}}}).Ints("axes"),
              ElementsAre(1, 0));
}

TEST(Permute, RejectsInvalidArguments) {
  EXPECT_THAT(Permute({2, 3}, {0}), HasSubstr("each of the 2 dimensions once"));
  EXPECT_THAT(Permute({2, 3}, {1, -1}), HasSubstr("named twice"));
  EXPECT_THAT(Permute({2, 3}, {0, 2}), HasSubstr("out of range"));
}

std::string Slice(Shape shape, Ints starts, Ints stops, Ints axes = {}, Ints steps = {}) {
  return Result("slice", {F32(std::move(shape))},
                {{"starts", std::move(starts)},
                 {"stops", std::move(stops)},
                 {"axes", std::move(axes)},
                 {"steps", std::move(steps)}});
}

TEST(Slice, FollowsPython) {
  EXPECT_EQ(Slice({10}, {2}, {7}), "float32[5]");
  EXPECT_EQ(Slice({10}, {2}, {7}, {}, {2}), "float32[3]");
  EXPECT_EQ(Slice({10}, {-3}, {kMax}), "float32[3]");
  EXPECT_EQ(Slice({10}, {kMin}, {-1}), "float32[9] alias");
  EXPECT_EQ(Slice({10}, {7}, {2}), "float32[0]");
  EXPECT_EQ(Slice({10}, {20}, {30}), "float32[0]");
  EXPECT_EQ(Slice({10}, {kMax}, {kMin}), "float32[0]");
  EXPECT_EQ(Slice({10}, {0}, {10}, {}, {kMax}), "float32[1] alias");
  EXPECT_EQ(Slice({4, 10}, {1}, {3}, {-1}), "float32[4, 2]");
  EXPECT_EQ(Slice({4, 10}, {1, 1}, {3, 2}, {1, 0}, {1, 1}), "float32[1, 2]");
  EXPECT_EQ(Slice({0, 3}, {0}, {5}), "float32[0, 3] alias");
}

TEST(Slice, OfEverythingIsAnAlias) {
  EXPECT_EQ(Slice({4, 10}, {}, {}), "float32[4, 10] alias");
  EXPECT_EQ(Slice({4, 10}, {0, -10}, {kMax, 10}), "float32[4, 10] alias");
  EXPECT_EQ(Slice({}, {}, {}), "float32[] alias");
}

TEST(Slice, OfAnAlignedRangeIsAnAlias) {
  EXPECT_EQ(Slice({4, 16}, {1}, {3}), "float32[2, 16] alias");
  EXPECT_EQ(Slice({4, 16}, {2, 0}, {3, 5}), "float32[1, 5] alias");
  EXPECT_EQ(Slice({4, 10}, {1}, {3}), "float32[2, 10]") << "begins at byte 40";
  EXPECT_EQ(Slice({4, 16}, {0, 0}, {4, 8}), "float32[4, 8]") << "several ranges";
  EXPECT_EQ(Slice({64}, {0}, {64}, {}, {2}), "float32[32]") << "a step";
}

TEST(Slice, NormalFormCoversEveryAxis) {
  const Attributes attrs = NormalForm(
      "slice", {F32({4, 10})},
      {{"starts", Ints{-4}}, {"stops", Ints{100}}, {"axes", Ints{1}}, {"steps", Ints{3}}});
  EXPECT_THAT(attrs.Ints("starts"), ElementsAre(0, 6));
  EXPECT_THAT(attrs.Ints("stops"), ElementsAre(4, 10));
  EXPECT_THAT(attrs.Ints("steps"), ElementsAre(1, 3));
  const Attributes empty =
      NormalForm("slice", {F32({10})}, {{"starts", Ints{7}}, {"stops", Ints{2}}});
  EXPECT_THAT(empty.Ints("starts"), ElementsAre(7));
  EXPECT_THAT(empty.Ints("stops"), ElementsAre(7));
}

TEST(Slice, GoesBackwardsWithANegativeStep) {
  EXPECT_EQ(Slice({10}, {kMax}, {kMin}, {}, {-1}), "float32[10]") << "no alias";
  EXPECT_EQ(Slice({10}, {-1}, {-11}, {}, {-3}), "float32[4]");
  EXPECT_EQ(Slice({10}, {7}, {2}, {}, {-1}), "float32[5]");
  EXPECT_EQ(Slice({10}, {7}, {2}, {}, {-2}), "float32[3]");
  EXPECT_EQ(Slice({10}, {2}, {7}, {}, {-1}), "float32[0]");
  EXPECT_EQ(Slice({10}, {kMin}, {kMax}, {}, {-1}), "float32[0]");
  EXPECT_EQ(Slice({0}, {kMax}, {kMin}, {}, {-1}), "float32[0] alias");
  EXPECT_EQ(Slice({1}, {kMax}, {kMin}, {}, {kMin}), "float32[1] alias");
  EXPECT_EQ(Slice({4, 16}, {2, 0}, {1, 16}, {}, {-1, 1}), "float32[1, 16] alias");
  EXPECT_EQ(Slice({4, 16}, {kMax}, {kMin}, {}, {-1}), "float32[4, 16]");
}

TEST(Slice, NormalFormOfANegativeStep) {
  const auto normal = [](int64_t start, int64_t stop, int64_t step) {
    const Attributes attrs =
        NormalForm("slice", {F32({10})},
                   {{"starts", Ints{start}}, {"stops", Ints{stop}}, {"steps", Ints{step}}});
    return Ints{attrs.Ints("starts")[0], attrs.Ints("stops")[0], attrs.Ints("steps")[0]};
  };
  EXPECT_THAT(normal(kMax, kMin, -1), ElementsAre(9, -11, -1));
  EXPECT_THAT(normal(-2, 3, -2), ElementsAre(8, 3, -2));
  EXPECT_THAT(normal(4, kMin, kMin), ElementsAre(4, 5, 1));
  EXPECT_THAT(normal(3, 3, -4), ElementsAre(0, 0, -1));
}

TEST(Slice, RejectsInvalidArguments) {
  EXPECT_THAT(Slice({10}, {0}, {1, 2}), HasSubstr("stops has 2 entries and starts has 1"));
  EXPECT_THAT(Slice({10}, {0}, {}), HasSubstr("stops has 0 entries"));
  EXPECT_THAT(Slice({10}, {0}, {1}, {0, 1}), HasSubstr("axes has 2"));
  EXPECT_THAT(Slice({10}, {0, 0}, {1, 1}), HasSubstr("2 entries for 1 dimensions"));
  EXPECT_THAT(Slice({10}, {0}, {1}, {1}), HasSubstr("out of range"));
  EXPECT_THAT(Slice({4, 4}, {0, 0}, {1, 1}, {0, -2}), HasSubstr("named twice"));
  EXPECT_THAT(Slice({10}, {0}, {1}, {}, {0}), HasSubstr("step of axis 0 must not be 0"));
}

TEST(Concat, JoinsAlongAnAxisAndPromotes) {
  EXPECT_EQ(Result("concat", {F32({2, 3}), F32({4, 3})}), "float32[6, 3]");
  EXPECT_EQ(Result("concat", {F32({2, 3}), F32({2, 0}), F32({2, 1})}, {{"axis", int64_t{-1}}}),
            "float32[2, 4]");
  EXPECT_EQ(Result("concat", {Of(DType::kInt8), Of(DType::kInt64)}), "int64[4]");
  EXPECT_EQ(ReadAs("concat", {Of(DType::kInt8), Of(DType::kInt64)}), DType::kInt64);
  EXPECT_EQ(Result("concat", {F32({2, 3})}), "float32[2, 3] alias");
  EXPECT_EQ(NormalForm("concat", {F32({2, 3})}, {{"axis", int64_t{-1}}}).Int("axis"), 1);
}

TEST(Concat, RejectsInvalidArguments) {
  EXPECT_THAT(
      Result("concat", {F32({2, 3}), F32({2, 4})}),
      AllOf(HasSubstr("inputs 0 and 1 differ at dimension 1"), HasSubstr("only at axis 0")));
  EXPECT_THAT(Result("concat", {F32({2}), F32({2, 4})}), HasSubstr("1 and 2 dimensions"));
  EXPECT_THAT(Result("concat", {F32({}), F32({})}), HasSubstr("reshape them to [1]"));
  EXPECT_THAT(Result("concat", {F32({2})}, {{"axis", int64_t{1}}}), HasSubstr("out of range"));
  EXPECT_THAT(Result("concat", {F32({2}), Of(DType::kBool)}), HasSubstr("bool to float32"));
  const TensorSpec large = F32({kMaxElements});
  EXPECT_THAT(Result("concat", {large, large}), HasSubstr("281474976710656 (2^48)"));
  const TensorSpec hollow = F32({kMaxElements, 0});
  EXPECT_THAT(Result("concat", std::vector<TensorSpec>(1024, hollow)), HasSubstr("too large"));
}

TEST(BroadcastTo, RepeatsAndAliasesIfNothingRepeats) {
  const auto broadcast = [](Shape from, Ints to) {
    return Result("broadcast_to", {F32(std::move(from))}, {{"shape", std::move(to)}});
  };
  EXPECT_EQ(broadcast({3, 1}, {2, 3, 4}), "float32[2, 3, 4]");
  EXPECT_EQ(broadcast({}, {2}), "float32[2]");
  EXPECT_EQ(broadcast({1}, {0}), "float32[0]");
  EXPECT_EQ(broadcast({3}, {3}), "float32[3] alias");
  EXPECT_EQ(broadcast({3}, {1, 3}), "float32[1, 3] alias");
  EXPECT_THAT(broadcast({3}, {4}), HasSubstr("3 and 4"));
  EXPECT_THAT(broadcast({3}, {1}), HasSubstr("doesn't broadcast to [1]"));
  EXPECT_THAT(broadcast({2, 3}, {3}), HasSubstr("doesn't broadcast to [3]"));
  EXPECT_THAT(broadcast({3}, {-1, 3}), HasSubstr("negative"));
  EXPECT_THAT(broadcast({1}, {int64_t{1} << 62}), HasSubstr("2^48"));
}

}  // namespace
}  // namespace tensord
