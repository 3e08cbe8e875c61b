// Ops that read and write elements at indices, which are elements of integer tensors.
#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/kernel_table.h"
#include "tensord/server/device/cuda/kernels/indexing.h"
#include "tensord/server/device/cuda/kernels/unit.h"

namespace tensord::server::cuda {
namespace {

IndexTensor IndicesAt(const KernelCall& call, int input, int axis, int64_t size) {
  const Operand& indices = call.inputs[input];
  return {indices.data, indices.spec->dtype == DType::kInt64, input, axis, size};
}

// The first input of index or index_put as (groups, rows, row): the axes before the indexed ones,
// the indexed axes, and the axes after them.
struct IndexedRows {
  int64_t groups = 1;
  int64_t rows = 1;
  int64_t row_bytes = 1;
  Shape indices;  // the shape to which the index tensors broadcast
};

IndexedRows IndexedRowsOf(const KernelCall& call, int tensors) {
  const TensorSpec& x = *call.inputs[0].spec;
  const auto axis = static_cast<int>(call.attrs->Int("axis"));
  IndexedRows rows;
  rows.row_bytes = SizeOf(x.dtype);
  for (int d = 0; d < axis; ++d) rows.groups *= x.shape.dim(d);
  for (int d = axis; d < axis + tensors; ++d) rows.rows *= x.shape.dim(d);
  for (int d = axis + tensors; d < x.shape.rank(); ++d) rows.row_bytes *= x.shape.dim(d);
  for (int i = 1; i <= tensors; ++i) {
    rows.indices = *BroadcastShapes(rows.indices, call.inputs[i].spec->shape);
  }
  return rows;
}

// Returns memory with the selected rows, as int64: for each of `groups` groups, one for each index.
// The rows of a group are counted from the first row of the first group.
absl::StatusOr<Scratch> SelectRows(const KernelCall& call, KernelContext& context, int tensors,
                                   const IndexedRows& rows, int64_t groups) {
  Shape items({groups});
  for (const int64_t dim : rows.indices.dims()) items.AppendDim(dim);
  const Shape& x = call.inputs[0].spec->shape;
  const auto axis = static_cast<int>(call.attrs->Int("axis"));
  TENSORD_ASSIGN_OR_RETURN(
      Scratch scratch,
      MakeScratch(context, items.num_elements() * static_cast<int64_t>(sizeof(int64_t))));
  SelectJob job;
  job.count = rows.indices.num_elements();
  job.group_rows = groups > 1 ? rows.rows : 0;
  job.stride = rows.rows;
  for (int i = 0; i < tensors; ++i) {
    const IndexTensor indices = IndicesAt(call, 1 + i, axis + i, x.dim(axis + i));
    const Dims strides = BroadcastStrides(call.inputs[1 + i].spec->shape, items);
    job.loop = MakeStridedLoop<1>(items.rank(), items.dims().data(), {strides.data()});
    job.stride /= indices.size;
    job.accumulate = i > 0;
    TENSORD_RETURN_IF_ERROR(
        LaunchStatus(call, LaunchSelectRows(indices, job, static_cast<int64_t*>(scratch.data()),
                                            call.check, context.stream)));
  }
  return scratch;
}

absl::Status RunIndex(const KernelCall& call, KernelContext& context) {
  if (call.output().spec->num_elements() == 0) return absl::OkStatus();
  const auto tensors = static_cast<int>(call.inputs.size()) - 1;
  const IndexedRows rows = IndexedRowsOf(call, tensors);
  TENSORD_ASSIGN_OR_RETURN(const Scratch selected, SelectRows(call, context, tensors, rows, 1));
  Unit unit;
  unit.MustDivide(call.inputs[0].data);
  unit.MustDivide(call.output().data);
  unit.MustDivide(rows.row_bytes);
  const RowsJob job = {rows.groups, rows.rows, rows.indices.num_elements(),
                       rows.row_bytes / unit.bytes()};
  return LaunchStatus(
      call,
      LaunchCopyRows(call.inputs[0].data, static_cast<const int64_t*>(selected.data()),
                     call.output().data, static_cast<int>(unit.bytes()), job, context.stream));
}

}  // namespace

void AppendIndexingKernels(KernelTable& table) { table["index"] = RunIndex; }

}  // namespace tensord::server::cuda
