// The check of the values of index tensors.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "tensord/server/device/cpu/kernel.h"

namespace tensord::server::cpu {

// Checks that elements of call.inputs[input], of int32 or int64, are indices into an axis of `size`
// elements: in [-size, size). A kernel whose output doesn't overwrite an input may check the indices
// block by block, each block before it uses it. This is faster than CheckIndices(), because the
// indices are then in the cache.
class IndexCheck {
 public:
  // `ctx` and `call` must outlive the object.
  IndexCheck(const Context& ctx, const KernelCall& call, int input, int axis, int64_t size);

  // The number of elements to check at a time. They stay in the first-level cache.
  static constexpr int64_t kBlock = 1024;

  // Thread-safe. Returns whether all elements [begin, end) are in range. If one isn't, or if
  // another call has found one before `begin`, returns false.
  bool InRange(int64_t begin, int64_t end);

  // After the calls of InRange(): returns BadIndexError() of the first element that isn't in range.
  // If there is none, returns OK. If the op must stop, may return CANCELLED.
  absl::Status status() const;

 private:
  const KernelCall& call_;
  const int input_, axis_;
  const int64_t size_;
  const Operand& indices_;
  const IndicesInRangeLoop in_range_;
  std::atomic<int64_t> first_bad_;  // the number of elements: none
};

// Checks all elements on the team, as IndexCheck does. If the op must stop, returns CANCELLED.
absl::Status CheckIndices(const Context& ctx, const KernelCall& call, int input, int axis,
                          int64_t size);

}  // namespace tensord::server::cpu
