// Checks of the values of index tensors.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "tensord/server/device/cpu/kernel.h"

namespace tensord::server::cpu {

// Checks that elements of call.inputs[input], of int32 or int64, are indices into an axis of `size`
// elements. If the op's attribute `from_end` is true, the range is [-size, size), otherwise it is
// [0, size). A kernel whose output doesn't overwrite an input may check the indices block by block,
// each block before it uses it. This is faster than CheckIndices(), because the indices are then in
// the cache.
class IndexCheck {
 public:
  // The inputs of `call` must outlive the object.
  IndexCheck(const Context& ctx, const KernelCall& call, int input, int axis, int64_t size);

  // The number of elements to check at a time. They stay in the first-level cache.
  static constexpr int64_t kBlock = 1024;

  // Thread-safe. Returns the range of the elements [begin, end). If another call has found one
  // outside before `begin`, returns kOutside.
  IndexRange RangeOf(int64_t begin, int64_t end);
  bool InRange(int64_t begin, int64_t end) { return RangeOf(begin, end) != IndexRange::kOutside; }

  // After the calls of RangeOf(): returns BadIndexError() of the first element that isn't in range.
  // If there is none, returns OK. If the op must stop, may return CANCELLED.
  absl::Status status() const;

 private:
  const int input_, axis_;
  const int64_t size_;
  const bool from_end_;
  const Operand& indices_;
  const IndexRangeLoop range_;
  std::atomic<int64_t> first_bad_;  // the number of elements: none
};

// Checks all elements on the team, as IndexCheck does. If the op must stop, returns CANCELLED.
absl::Status CheckIndices(const Context& ctx, const KernelCall& call, int input, int axis,
                          int64_t size);

}  // namespace tensord::server::cpu
