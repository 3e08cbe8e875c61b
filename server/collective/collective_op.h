// What a group does together, as one member sees it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/common/tensor_spec.h"
#include "tensord/server/collective/member_names.h"

namespace tensord::server {

// The values are those of v1::CollectiveKind.
enum class CollectiveKind { kBroadcast = 1, kAllGather, kReduceScatter, kAllReduce, kBarrier };
// The values are those of v1::Reduction.
enum class CollectiveReduction { kSum = 1, kMean, kMax };

struct CollectiveOp {
  CollectiveKind kind = CollectiveKind::kBarrier;
  CollectiveReduction reduction = CollectiveReduction::kSum;
  int root = 0;
  TensorSpec spec;  // of each input; not of a barrier

  bool reduces() const {
    return kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllReduce;
  }
  // Whether the member of this rank brings a tensor.
  bool HasInput(int rank) const {
    return kind != CollectiveKind::kBarrier && (kind != CollectiveKind::kBroadcast || rank == root);
  }
  // "all_reduce(sum) of float32[4, 8]".
  std::string ToString() const;
};

// What the result of `op` is in a group of `size`. INVALID_ARGUMENT where the op can't be: a dtype
// that isn't reduced, a mean of integers, a first dimension that can't be shared out, no such root.
absl::StatusOr<TensorSpec> PlanCollective(const CollectiveOp& op, int size);

// What a member says before anything moves: which op it is about to run, or why it can't.
std::string EncodeIntent(uint64_t sequence, const CollectiveOp& op, const absl::Status& mine);

// The same of one that has nothing more to run, and leaves when all others have said something,
// too.
std::string EncodeLeaving();

// What becomes of the op, given what all members said: the same at each. OK where all run the same;
// INVALID_ARGUMENT naming two that don't; the error of the first that can't take part.
absl::Status JudgeIntents(absl::Span<const std::string> intents, const MemberNames& names = {});

}  // namespace tensord::server
