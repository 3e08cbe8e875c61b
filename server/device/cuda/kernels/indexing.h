// Launchers of the kernels that read elements at indices. If an index is out of range, the kernel
// reports it to `check`, and uses 0 instead.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tensord/server/device/check_cell.h"
#include "tensord/server/device/cuda/kernels/strided_loop.h"

namespace tensord::server::cuda {

// A tensor of indices into an axis of another tensor.
struct IndexTensor {
  const void* data = nullptr;
  bool wide = false;     // int64, otherwise int32
  int input = 0;         // its position among the op's inputs
  int axis = 0;          // of the tensor that is indexed
  int64_t size = 0;      // of that axis; positive
  bool from_end = true;  // negative indices count from the end; otherwise they are out of range
};

// Item i is number i % count of the group i / count. `loop` computes the offset of its index in the
// index tensor.
struct SelectJob {
  StridedLoop<1> loop;
  int64_t count = 1;
  int64_t group_rows = 0;  // the distance of the first rows of two groups
  int64_t stride = 1;      // rows per index
  bool accumulate = false;
};
// rows[i] = first row of the group + stride · index. With `accumulate`, adds stride · index to
// rows[i].
cudaError_t LaunchSelectRows(const IndexTensor& indices, const SelectJob& job, int64_t* rows,
                             const CheckCell& check, cudaStream_t stream);

// out[g, i] = in[g, rows[i]] for the rows of (groups, in_rows, width) and (groups, count, width).
// Widths are in units of `unit_bytes`: 1, 2, 4, 8 or 16.
struct RowsJob {
  int64_t groups = 1;
  int64_t in_rows = 1;
  int64_t count = 1;
  int64_t width = 1;
};
cudaError_t LaunchCopyRows(const void* in, const int64_t* rows, void* out, int unit_bytes,
                           const RowsJob& job, cudaStream_t stream);

// out[i] = in[offset + axis_stride · index i] for the dense index tensor. `loop` computes offsets
// in `in`. Elements have 1, 2, 4, 8 or 16 bytes.
cudaError_t LaunchGather(const void* in, const IndexTensor& indices, int64_t axis_stride,
                         const StridedLoop<1>& loop, void* out, int element_bytes,
                         const CheckCell& check, cudaStream_t stream);

}  // namespace tensord::server::cuda
