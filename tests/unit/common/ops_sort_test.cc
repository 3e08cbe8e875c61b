#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tensord/tests/unit/common/plan.h"

namespace tensord {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

Attributes K(int64_t k, int64_t axis = -1) { return {{"k", k}, {"axis", axis}}; }
Attributes Size(int64_t size) { return {{"size", size}}; }

// Returns the specs of the op's outputs.
std::string OutputsOf(absl::string_view op, const std::vector<TensorSpec>& inputs,
                      const Attributes& attrs) {
  std::string text = Result(op, inputs, attrs);
  const absl::StatusOr<OpPlan> plan = PlanOp(op, inputs, attrs);
  if (!plan.ok()) return text;
  for (size_t i = 1; i < plan->outputs.size(); ++i) text += " " + plan->outputs[i].ToString();
  return text;
}

TEST(Sort, HasValuesAndIndicesOfTheInputsShape) {
  EXPECT_EQ(OutputsOf("sort", {F32({2, 3})}, {}), "float32[2, 3] int64[2, 3]");
  EXPECT_EQ(OutputsOf("sort", {F32({})}, {{"axis", int64_t{0}}}), "float32[] int64[]");
  EXPECT_EQ(OutputsOf("sort", {Of(DType::kBool, {0, 3})}, {{"axis", int64_t{-2}}}),
            "bool[0, 3] int64[0, 3]");
  EXPECT_EQ(NormalForm("sort", {F32({2, 3})}, {}).Int("axis"), 1);
}

TEST(TopK, ReplacesTheAxisByK) {
  EXPECT_EQ(OutputsOf("topk", {F32({2, 5})}, K(3)), "float32[2, 3] int64[2, 3]");
  EXPECT_EQ(OutputsOf("topk", {Of(DType::kInt8, {2, 5})}, K(0, 0)), "int8[0, 5] int64[0, 5]");
  EXPECT_EQ(OutputsOf("topk", {F32({})}, K(1)), "float32[] int64[]");
  EXPECT_EQ(NormalForm("topk", {F32({2, 5})}, K(2, -2)).Int("axis"), 0);
}

TEST(TopK, RefusesAKBeyondTheAxis) {
  EXPECT_THAT(OutputsOf("topk", {F32({2, 5})}, K(6)),
              AllOf(HasSubstr("topk"), HasSubstr("k is 6 and must be from 0 to 5")));
  EXPECT_THAT(OutputsOf("topk", {F32({2, 5})}, K(3, 0)), HasSubstr("from 0 to 2"));
  EXPECT_THAT(OutputsOf("topk", {F32({5})}, K(-1)), HasSubstr("k is -1"));
  EXPECT_THAT(OutputsOf("topk", {F32({5})}, K(kHuge)), HasSubstr("must be from 0 to 5"));
  EXPECT_THAT(OutputsOf("topk", {F32({})}, K(2)), HasSubstr("from 0 to 1"));
  EXPECT_THAT(OutputsOf("topk", {F32({})}, K(0)), HasSubstr("scalar"));
  EXPECT_THAT(OutputsOf("topk", {F32({5})}, {}), HasSubstr("attribute k"));
  EXPECT_THAT(OutputsOf("topk", {Of(DType::kBool, {5})}, K(1)), HasSubstr("cast first"));
}

TEST(SortAndTopK, RefuseAnAxisOutOfRange) {
  EXPECT_THAT(OutputsOf("sort", {F32({2, 3})}, {{"axis", int64_t{2}}}),
              HasSubstr("axis 2 is out of range"));
  EXPECT_THAT(OutputsOf("topk", {F32({2, 3})}, K(1, -3)), HasSubstr("from -2 to 1"));
  EXPECT_THAT(OutputsOf("sort", {F32({2})}, {{"axis", std::numeric_limits<int64_t>::min()}}),
              HasSubstr("out of range"));
}

TEST(SearchSorted, HasTheShapeOfX) {
  EXPECT_EQ(OutputsOf("searchsorted", {F32({7}), F32({2, 3})}, {}), "int64[2, 3]");
  EXPECT_EQ(OutputsOf("searchsorted", {F32({7}), F32({})}, {}), "int64[]");
  EXPECT_EQ(OutputsOf("searchsorted", {F32({2, 7}), F32({2, 3})}, {}), "int64[2, 3]");
  EXPECT_EQ(OutputsOf("searchsorted", {F32({0}), F32({4})}, {}), "int64[4]");
}

TEST(SearchSorted, ReadsBothInputsInOneDType) {
  const OpPlan plan =
      PlanOp("searchsorted", {Of(DType::kInt32, {7}), Of(DType::kInt64, {2})}, {}).value();
  EXPECT_THAT(plan.input_dtypes, testing::ElementsAre(DType::kInt64, DType::kInt64));
  EXPECT_THAT(OutputsOf("searchsorted", {F32({7}), Of(DType::kInt64, {2})}, {}),
              HasSubstr("searchsorted"));
}

TEST(SearchSorted, RefusesShapesThatDoNotFit) {
  EXPECT_THAT(OutputsOf("searchsorted", {F32({}), F32({2})}, {}), HasSubstr("reshape it to [1]"));
  for (const Shape& x : {Shape{3, 2}, Shape{2}, Shape{}, Shape{1, 2, 2}}) {
    EXPECT_THAT(OutputsOf("searchsorted", {F32({2, 7}), F32(x)}, {}), HasSubstr("one dimension"));
  }
  EXPECT_THAT(OutputsOf("searchsorted", {Of(DType::kBool, {2}), Of(DType::kBool, {2})}, {}),
              HasSubstr("cast first"));
}

TEST(Nonzero, HasARowForEachAxisAndSizeColumns) {
  EXPECT_EQ(OutputsOf("nonzero", {F32({4, 5, 6})}, Size(7)), "int64[3, 7]");
  EXPECT_EQ(OutputsOf("nonzero", {Of(DType::kBool, {4})}, Size(0)), "int64[1, 0]");
  EXPECT_EQ(OutputsOf("nonzero", {F32({})}, Size(1)), "int64[0, 1]");
  EXPECT_EQ(OutputsOf("nonzero", {F32({0, 3})}, Size(9)), "int64[2, 9]");
}

TEST(Nonzero, RefusesSizesOutOfRange) {
  EXPECT_THAT(OutputsOf("nonzero", {F32({4})}, Size(-1)),
              AllOf(HasSubstr("nonzero"), HasSubstr("size is -1")));
  EXPECT_THAT(OutputsOf("nonzero", {F32({4})}, Size(kHuge)), HasSubstr("must be from 0 to"));
  EXPECT_THAT(OutputsOf("nonzero", {F32({4, 4})}, Size(kMaxElements)), HasSubstr("too large"));
  EXPECT_THAT(OutputsOf("nonzero", {F32({4})}, {}), HasSubstr("attribute size"));
}

}  // namespace
}  // namespace tensord
