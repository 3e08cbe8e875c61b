// Collective operations, and the messages by which the members agree on the next one.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/common/tensor_spec.h"
#include "tensord/server/communicator/member_names.h"

namespace tensord::server {

// The values are those of v1::CollectiveKind.
enum class CollectiveKind { kBroadcast = 1, kAllGather, kReduceScatter, kAllReduce, kBarrier };
// The values are those of v1::Reduction.
enum class CollectiveReduction { kSum = 1, kMean, kMax };

struct CollectiveOp {
  CollectiveKind kind = CollectiveKind::kBarrier;
  CollectiveReduction reduction = CollectiveReduction::kSum;
  int root = 0;
  TensorSpec spec;  // of each input; unused in a barrier

  bool reduces() const {
    return kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllReduce;
  }
  // Returns whether the member of this rank has an input tensor.
  bool HasInput(int rank) const {
    return kind != CollectiveKind::kBarrier && (kind != CollectiveKind::kBroadcast || rank == root);
  }
  // Returns text such as "all_reduce(sum) of float32[4, 8]".
  std::string ToString() const;
};

// Returns the spec of the result of `op` in a group of `size` members. Returns INVALID_ARGUMENT for
// a mean of integers, any other reduction of bool, complex or 16-bit integers, and a root that does
// not exist. Does the same for a scalar, or a first dimension, that can't be gathered or divided by
// `size`.
absl::StatusOr<TensorSpec> PlanCollective(const CollectiveOp& op, int size);

// Returns the message that a member sends before elements are transferred. It names the op and its
// sequence number. If the member can't run the op, it contains the error `mine` instead.
std::string EncodeIntent(uint64_t sequence, const CollectiveOp& op, const absl::Status& mine);

// Returns the message of a member that has no more ops. The member leaves once it has the messages
// of all other members.
std::string EncodeLeaveIntent();

// Returns the outcome of the agreement. `intents` are the messages of all members, by rank. If all
// members run the same op, returns OK. If two ops differ, returns INVALID_ARGUMENT that names both
// members. If a member can't take part, returns the error of the first such member.
absl::Status CompareIntents(absl::Span<const std::string> intents, const MemberNames& names = {});

}  // namespace tensord::server
