// Changes of rows of a tensor (index_put, scatter).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "tensord/server/device/cpu/kernel.h"

namespace tensord::server::cpu {

// How a row changes. With kReplace, it becomes the last of its values. Otherwise it is combined
// with all of them in order.
enum class Combine { kReplace, kAdd, kMul, kMax, kMin };

// Returns the value of the attribute "reduce".
Combine ReadCombine(const KernelCall& call);

// The target is a dense tensor of shape (groups, rows, row_elements). In each group, update u in
// [0, count) combines the row destinations[u] with a row of `values`.
struct Updates {
  int64_t groups = 1;
  int64_t rows = 1;
  int64_t row_elements = 1;
  int64_t count = 1;
  const int64_t* destinations = nullptr;  // in [0, rows)
  // The destinations of group g begin at g · group_stride. The stride is 0 or `count`.
  int64_t group_stride = 0;
  const void* values = nullptr;
  // The number of rows from the first row of `values` of a group to that of the next one.
  int64_t values_stride = 1;
  // The row of `values` for each update of each group. If it is null, the rows are in the order of
  // the updates. If `one_value` is true, all updates have row 0.
  const int64_t* sources = nullptr;
  bool one_value = false;

  int64_t SourceOf(int64_t group, int64_t update) const {
    if (one_value) return 0;
    const int64_t at = group * values_stride + update;
    return sources == nullptr ? at : sources[at];
  }
};

// Applies the updates to call.output(). Each row gets its values in order of the updates, for any
// number of threads. Rows of a 16-bit dtype are combined in its ComputeDType() and converted back
// once. If there is too little memory, returns RESOURCE_EXHAUSTED. If the op must stop, returns
// CANCELLED.
absl::Status ApplyUpdates(const Context& ctx, const KernelCall& call, Combine combine,
                          const Updates& updates);

}  // namespace tensord::server::cpu
