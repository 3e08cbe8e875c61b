// Launchers of the kernels that change rows of a tensor (index_put, scatter).
//
// A tensor that is updated is a dense matrix of rows. The updates are sorted by the row that they
// change, and those of one row keep their order. So the results don't depend on the order in which
// threads run.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tensord/server/device/check_cell.h"
#include "tensord/server/device/cuda/kernels/dispatch.h"
#include "tensord/server/device/cuda/kernels/indexing.h"
#include "tensord/server/device/cuda/kernels/strided_loop.h"

namespace tensord::server::cuda {

struct alignas(16) RowUpdate {
  int64_t row;     // the row that changes
  int64_t source;  // the row of the values
};

// updates[i] = {rows[i], i}, for i in [0, count).
cudaError_t LaunchMakeUpdates(const int64_t* rows, RowUpdate* updates, int64_t count,
                              cudaStream_t stream);

// updates[i] = {offset in the target + axis_stride · index i, offset in the values}. `loop` has the
// strides of (target, values) for the dense index tensor. A row is one element. If an index is out
// of range, does the same as the launchers of indexing.h.
cudaError_t LaunchMakeScatterUpdates(const IndexTensor& indices, int64_t axis_stride,
                                     const StridedLoop<2>& loop, RowUpdate* updates,
                                     const CheckCell& check, cudaStream_t stream);

// Returns the bytes of scratch memory, besides the updates, that LaunchSortUpdates() needs.
int64_t SortScratchBytes(int64_t count);

// Sorts the updates by their rows in [0, rows). Sets `*sorted` to the address of the result, which
// is `updates` or in `scratch`.
cudaError_t LaunchSortUpdates(RowUpdate* updates, int64_t count, int64_t rows, void* scratch,
                              const RowUpdate** sorted, cudaStream_t stream);

struct UpdateJob {
  const RowUpdate* updates = nullptr;  // sorted
  int64_t count = 0;
  int64_t width = 1;       // units of a row
  bool one_value = false;  // true: all units get the value values[0]
};
// Sets each row that is updated to the last of its values. Widths are in units of `unit_bytes`: 1,
// 2, 4, 8 or 16.
cudaError_t LaunchReplaceRows(const UpdateJob& job, const void* values, void* target,
                              int unit_bytes, cudaStream_t stream);

enum class Combine { kAdd, kMul, kMax, kMin };
// Combines each row that is updated with its values in order. Widths are in elements. 16-bit floats
// are combined in float32 and rounded once.
using CombineRowsLauncher = cudaError_t (*)(Combine combine, const UpdateJob& job,
                                            const void* values, void* target, cudaStream_t stream);
const ByDType<CombineRowsLauncher>& CombineRowsLaunchers();

}  // namespace tensord::server::cuda
