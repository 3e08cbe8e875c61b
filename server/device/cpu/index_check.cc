#include "tensord/server/device/cpu/index_check.h"

#include <algorithm>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/stop_token.h"
#include "tensord/server/device/value_check.h"

namespace tensord::server::cpu {
namespace {

int64_t ValueAt(const Operand& indices, int64_t i) {
  return indices.spec->dtype == DType::kInt64 ? indices.As<int64_t>()[i] : indices.As<int32_t>()[i];
}

}  // namespace

IndexCheck::IndexCheck(const Context& ctx, const KernelCall& call, int input, int axis,
                       int64_t size)
    : input_(input),
      axis_(axis),
      size_(size),
      from_end_(call.attrs->Bool("from_end")),
      indices_(call.inputs[input]),
      range_(ctx.loops.index_range[Index(indices_.spec->dtype)]),
      first_bad_(indices_.spec->num_elements()) {}

IndexRange IndexCheck::RangeOf(int64_t begin, int64_t end) {
  int64_t first = first_bad_.load(std::memory_order_relaxed);
  if (first < begin) return IndexRange::kOutside;
  const int64_t bytes = SizeOf(indices_.spec->dtype);
  const IndexRange range = range_(Advance(indices_.data, begin * bytes), end - begin, size_);
  if (range == IndexRange::kNonNegative) return range;
  if (range != IndexRange::kOutside && from_end_) return range;
  const auto is_index = [this](int64_t value) {
    return NormalIndex(value, size_) >= 0 && (value >= 0 || from_end_);
  };
  while (is_index(ValueAt(indices_, begin))) ++begin;
  while (begin < first &&
         !first_bad_.compare_exchange_weak(first, begin, std::memory_order_relaxed)) {
  }
  return IndexRange::kOutside;
}

absl::Status IndexCheck::status() const {
  const int64_t at = first_bad_.load(std::memory_order_relaxed);
  if (at == indices_.spec->num_elements()) return absl::OkStatus();
  TENSORD_RETURN_IF_ERROR(CheckStop());  // an earlier element may not have been checked
  return BadIndexError({CheckKey(input_, at), ValueAt(indices_, at), size_, axis_, 0},
                       indices_.spec->shape);
}

absl::Status CheckIndices(const Context& ctx, const KernelCall& call, int input, int axis,
                          int64_t size) {
  IndexCheck check(ctx, call, input, axis, size);
  const int64_t count = call.inputs[input].spec->num_elements();
  ctx.team.For(count, 4 * kGrainElements,
               [&](int64_t begin, int64_t end) { check.InRange(begin, end); });
  TENSORD_RETURN_IF_ERROR(CheckStop());
  return check.status();
}

}  // namespace tensord::server::cpu
