#include "tensord/server/communicator/collective_op.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/common/util/utf8.h"

namespace tensord::server {
namespace {

// The limit of an error that a member sends to the other members.
constexpr size_t kMaxReasonBytes = 1024;

absl::string_view KindName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kBarrier:
      break;
  }
  return "barrier";
}

absl::string_view ReductionName(CollectiveReduction reduction) {
  switch (reduction) {
    case CollectiveReduction::kMean:
      return "mean";
    case CollectiveReduction::kMax:
      return "max";
    case CollectiveReduction::kSum:
      break;
  }
  return "sum";
}

// NCCL has no 16-bit integers.
bool CanBeReduced(DType dtype) {
  return IsFloating(dtype) || (IsInteger(dtype) && SizeOf(dtype) != 2);
}

absl::Status Refuse(const CollectiveOp& op, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(op.ToString(), ": ", why));
}

// Returns `spec` with another first dimension.
TensorSpec WithFirstDimension(const TensorSpec& spec, int64_t first) {
  const absl::Span<const int64_t> dims = spec.shape.dims();
  std::vector<int64_t> sizes(dims.begin(), dims.end());
  sizes[0] = first;
  return {spec.dtype, Shape(sizes)};
}

}  // namespace

std::string CollectiveOp::ToString() const {
  std::string text(KindName(kind));
  if (kind == CollectiveKind::kBarrier) return text;
  if (reduces()) absl::StrAppend(&text, "(", ReductionName(reduction), ")");
  absl::StrAppend(&text, " of ", spec.ToString());
  if (kind == CollectiveKind::kBroadcast) absl::StrAppend(&text, " from rank ", root);
  return text;
}

absl::StatusOr<TensorSpec> PlanCollective(const CollectiveOp& op, int size) {
  if (op.kind == CollectiveKind::kBarrier) return TensorSpec{DType::kUInt8, Shape({0})};
  TENSORD_RETURN_IF_ERROR(op.spec.Validate());
  if (op.reduces() && !CanBeReduced(op.spec.dtype)) {
    return Refuse(
        op,
        "a reduction needs a floating dtype, or integers of 8, 32 or 64 bits; cast before, "
        "for example to int32");
  }
  if (op.reduces() && op.reduction == CollectiveReduction::kMean && !IsFloating(op.spec.dtype)) {
    return Refuse(op, "a mean needs a floating dtype; use the sum and divide, or cast before");
  }
  if (op.kind == CollectiveKind::kBroadcast && (op.root < 0 || op.root >= size)) {
    return Refuse(op, absl::StrCat("the group has ranks 0 to ", size - 1));
  }
  if (op.kind == CollectiveKind::kBroadcast || op.kind == CollectiveKind::kAllReduce) {
    return op.spec;
  }
  if (op.spec.shape.rank() == 0) return Refuse(op, "a scalar has no first dimension");
  const int64_t first = op.spec.shape.dim(0);
  if (op.kind == CollectiveKind::kReduceScatter) {
    if (first % size == 0) return WithFirstDimension(op.spec, first / size);
    return Refuse(op,
                  absl::StrCat("the first dimension isn't divisible by the ", size, " members"));
  }
  if (first > (int64_t{1} << 48)) return Refuse(op, "the result is too large");
  const TensorSpec gathered = WithFirstDimension(op.spec, first * size);
  TENSORD_RETURN_IF_ERROR(gathered.Validate());
  return gathered;
}

std::string EncodeIntent(uint64_t sequence, const CollectiveOp& op, const absl::Status& mine) {
  const char code = static_cast<char>(mine.code());
  const std::string text =
      mine.ok() ? absl::StrCat(op.ToString(), " as number ", sequence)
                : absl::StrCat(op.ToString(), ": ", ToUtf8(mine.message(), kMaxReasonBytes));
  return absl::StrCat(absl::string_view(&code, 1), text);
}

std::string EncodeLeaveIntent() {
  const char code = static_cast<char>(absl::StatusCode::kAborted);
  return absl::StrCat(absl::string_view(&code, 1), "next operation: it is leaving");
}

absl::Status CompareIntents(absl::Span<const std::string> intents, const MemberNames& names) {
  for (size_t rank = 0; rank < intents.size(); ++rank) {
    const int code = intents[rank].empty() ? static_cast<int>(absl::StatusCode::kInternal)
                                           : static_cast<unsigned char>(intents[rank][0]);
    if (code == 0) continue;
    const bool known = code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
    return absl::Status(
        known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
        absl::StrCat(names.Describe(static_cast<int>(rank)),
                     " of the group can't take part in its ",
                     intents[rank].substr(std::min<size_t>(1, intents[rank].size()))));
  }
  for (size_t rank = 1; rank < intents.size(); ++rank) {
    if (intents[rank] == intents[0]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the members of a group must run the same operations in the same order, but ",
                     names.Describe(0), " runs ", intents[0].substr(1), ", and ",
                     names.Describe(static_cast<int>(rank)), " ", intents[rank].substr(1)));
  }
  return absl::OkStatus();
}

}  // namespace tensord::server
