// Plans of collective operations, and the comparison of the members' intents.
#include "tensord/server/communicator/collective_op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tensord::server {
namespace {

CollectiveOp Of(CollectiveKind kind, TensorSpec spec,
                CollectiveReduction reduction = CollectiveReduction::kSum) {
  return {kind, reduction, 0, std::move(spec)};
}

TEST(PlanCollectiveTest, GivesTheSpecOfTheResult) {
  const TensorSpec spec{DType::kFloat32, Shape({6, 5})};
  EXPECT_EQ(*PlanCollective(Of(CollectiveKind::kAllReduce, spec), 3), spec);
  EXPECT_EQ(*PlanCollective(Of(CollectiveKind::kBroadcast, spec), 3), spec);
  EXPECT_EQ(*PlanCollective(Of(CollectiveKind::kAllGather, spec), 3),
            (TensorSpec{DType::kFloat32, Shape({18, 5})}));
  EXPECT_EQ(*PlanCollective(Of(CollectiveKind::kReduceScatter, spec), 3),
            (TensorSpec{DType::kFloat32, Shape({2, 5})}));
  EXPECT_EQ(*PlanCollective(Of(CollectiveKind::kBarrier, {}), 3),
            (TensorSpec{DType::kUInt8, Shape({0})}));
}

TEST(PlanCollectiveTest, MovesElementsOfEveryDType) {
  for (DType dtype : kAllDTypes) {
    const TensorSpec spec{dtype, Shape({2})};
    EXPECT_EQ(*PlanCollective(Of(CollectiveKind::kBroadcast, spec), 2), spec);
    EXPECT_EQ(*PlanCollective(Of(CollectiveKind::kAllGather, spec), 2),
              (TensorSpec{dtype, Shape({4})}));
  }
}

TEST(PlanCollectiveTest, RejectsInvalidOperations) {
  const auto refused = [](const CollectiveOp& op, int size) {
    return absl::IsInvalidArgument(PlanCollective(op, size).status());
  };
  const TensorSpec scalar{DType::kFloat32, Shape()};
  EXPECT_TRUE(refused(Of(CollectiveKind::kAllGather, scalar), 2));
  EXPECT_TRUE(refused(Of(CollectiveKind::kReduceScatter, scalar), 2));
  EXPECT_FALSE(refused(Of(CollectiveKind::kAllReduce, scalar), 2));
  EXPECT_TRUE(refused(Of(CollectiveKind::kReduceScatter, {DType::kFloat32, Shape({7})}), 2));
  for (DType dtype : {DType::kBool, DType::kInt16, DType::kUInt16, DType::kComplex64}) {
    EXPECT_TRUE(refused(Of(CollectiveKind::kAllReduce, {dtype, Shape({2})}), 2));
    EXPECT_TRUE(refused(Of(CollectiveKind::kReduceScatter, {dtype, Shape({2})}), 2));
  }
  EXPECT_TRUE(refused(
      Of(CollectiveKind::kAllReduce, {DType::kInt64, Shape({2})}, CollectiveReduction::kMean), 2));
  EXPECT_TRUE(
      refused(Of(CollectiveKind::kAllGather, {DType::kFloat32, Shape({int64_t{1} << 48})}), 1024));
  CollectiveOp rootless = Of(CollectiveKind::kBroadcast, scalar);
  rootless.root = 2;
  EXPECT_TRUE(refused(rootless, 2));
}

TEST(JudgeIntentsTest, DifferentIntentsNameBothRanks) {
  const CollectiveOp sum = Of(CollectiveKind::kAllReduce, {DType::kFloat32, Shape({4, 8})});
  CollectiveOp max = sum;
  max.reduction = CollectiveReduction::kMax;
  const std::string a = EncodeIntent(7, sum, absl::OkStatus());
  EXPECT_TRUE(CompareIntents({a, a, a}).ok());
  const absl::Status other = CompareIntents({a, a, EncodeIntent(7, max, absl::OkStatus())});
  EXPECT_TRUE(absl::IsInvalidArgument(other));
  EXPECT_THAT(std::string(other.message()),
              testing::AllOf(testing::HasSubstr("rank 0 runs all_reduce(sum) of float32[4, 8]"),
                             testing::HasSubstr("rank 2 all_reduce(max) of float32[4, 8]")));
  const absl::Status later = CompareIntents({a, EncodeIntent(8, sum, absl::OkStatus())});
  EXPECT_THAT(std::string(later.message()), testing::HasSubstr("number 8"));
}

TEST(JudgeIntentsTest, ErrorOfOneMemberIsTheErrorOfAll) {
  const CollectiveOp op = Of(CollectiveKind::kAllReduce, {DType::kFloat32, Shape({4})});
  const std::string fine = EncodeIntent(1, op, absl::OkStatus());
  const std::string full =
      EncodeIntent(1, op, absl::ResourceExhaustedError(std::string(5000, 'm')));
  EXPECT_LE(full.size(), 4096u);
  const absl::Status status = CompareIntents({fine, full, fine});
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("rank 1"));
}

TEST(JudgeIntentsTest, LeavingMemberAbortsTheOperation) {
  const CollectiveOp op = Of(CollectiveKind::kAllReduce, {DType::kFloat32, Shape({4})});
  const absl::Status status =
      CompareIntents({EncodeIntent(1, op, absl::OkStatus()), EncodeLeaveIntent()});
  EXPECT_TRUE(absl::IsAborted(status));
  EXPECT_EQ(status.message(),
            "rank 1 of the group can't take part in its next operation: it is leaving");
}

TEST(JudgeIntentsTest, ErrorsUseTheClientsNamesOfMembers) {
  const MemberNames names({"gpu-a/cuda:0", "gpu-b/cuda:0"});
  const CollectiveOp sum = Of(CollectiveKind::kAllReduce, {DType::kFloat32, Shape({4})});
  const CollectiveOp barrier;
  const std::string first = EncodeIntent(1, sum, absl::OkStatus());
  const std::string other = EncodeIntent(1, barrier, absl::OkStatus());
  const std::string lost = EncodeIntent(1, sum, absl::DataLossError("the GPU was lost"));
  EXPECT_THAT(std::string(CompareIntents({first, other}, names).message()),
              testing::AllOf(testing::HasSubstr("rank 0 (gpu-a/cuda:0) runs"),
                             testing::HasSubstr("rank 1 (gpu-b/cuda:0) ")));
  EXPECT_THAT(std::string(CompareIntents({first, lost}, names).message()),
              testing::HasSubstr("rank 1 (gpu-b/cuda:0) of the group can't take part"));
}

TEST(MemberNamesTest, ShortensLongListsOfRanks) {
  const MemberNames names({"a", "", "c"});
  EXPECT_EQ(names.Describe(0), "rank 0 (a)");
  EXPECT_EQ(names.Describe(1), "rank 1");
  EXPECT_EQ(names.Describe({0, 1, 2, 3}), "rank 0 (a), 1, 2 (c), 3");
  EXPECT_EQ(MemberNames().Describe({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}),
            "rank 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

TEST(JudgeIntentsTest, InvalidIntentsAreAnError) {
  EXPECT_FALSE(CompareIntents({"", ""}).ok());
  EXPECT_FALSE(CompareIntents({std::string(1, '\xff'), std::string(1, '\xff')}).ok());
}

}  // namespace
}  // namespace tensord::server
