// The rows of a tensor that index tensors select (index, index_put).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "tensord/server/device/cpu/kernel.h"

namespace tensord::server::cpu {

// The first input of index or index_put as (groups, rows, row): the axes before the indexed ones,
// the indexed axes, and the axes after them. In each group, `count` rows are selected.
struct IndexedRows {
  int64_t groups = 1;
  int64_t rows = 1;
  int64_t row_elements = 1;
  int64_t count = 1;
};

// `tensors` is the number of index tensors, which are the inputs 1 to `tensors`.
IndexedRows ReadIndexedRows(const KernelCall& call, int tensors);

// Checks all indices. Returns BadIndexError() (value_check.h) for a bad one.
absl::Status CheckIndexTensors(const Context& ctx, const KernelCall& call, int tensors);

// Kernels compute the selected rows in blocks of at most this number. A block takes 32 MiB.
constexpr int64_t kSelectedRowsBlock = 4 << 20;

// Computes selected[0, n): the selected rows from number `first` on, as numbers in [0, rows), in
// row-major order of the broadcast index tensors. CheckIndexTensors() must have succeeded. If the
// op must stop, returns CANCELLED.
absl::Status ComputeSelectedRows(const Context& ctx, const KernelCall& call, int tensors,
                                 const IndexedRows& rows, int64_t first, int64_t n,
                                 int64_t* selected);

}  // namespace tensord::server::cpu
