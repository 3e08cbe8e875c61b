// Ops that read and write elements at indices, which are elements of integer tensors.
#include <string>
#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/kernel_table.h"
#include "tensord/server/device/cuda/kernels/indexing.h"
#include "tensord/server/device/cuda/kernels/unit.h"
#include "tensord/server/device/cuda/kernels/updates.h"

namespace tensord::server::cuda {
namespace {

IndexTensor IndicesAt(const KernelCall& call, int input, int axis, int64_t size) {
  const Operand& indices = call.inputs[input];
  return {indices.data, indices.spec->dtype == DType::kInt64, input, axis,
          size,         call.attrs->Bool("from_end")};
}

// The first input of index or index_put as (groups, rows, row): the axes before the indexed ones,
// the indexed axes, and the axes after them.
struct IndexedRows {
  int64_t groups = 1;
  int64_t rows = 1;
  int64_t row_bytes = 1;
  Shape indices;  // the shape to which the index tensors broadcast
};

IndexedRows ReadIndexedRows(const KernelCall& call, int tensors) {
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

// Returns memory with the numbers of the selected rows, as int64: for each of `groups` groups, one
// for each index. Rows are counted from the first row of the first group.
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
                                            call.context.check, context.stream)));
  }
  return scratch;
}

// Checks the indices of a call whose result is empty.
absl::Status CheckRows(const KernelCall& call, KernelContext& context, int tensors,
                       const IndexedRows& rows) {
  if (rows.indices.num_elements() == 0) return absl::OkStatus();
  return SelectRows(call, context, tensors, rows, 1).status();
}

absl::Status RunIndex(const KernelCall& call, KernelContext& context) {
  const auto tensors = static_cast<int>(call.inputs.size()) - 1;
  const IndexedRows rows = ReadIndexedRows(call, tensors);
  if (call.output().spec->num_elements() == 0) return CheckRows(call, context, tensors, rows);
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

// The indexed axis of gather or scatter, and the strides in input 0 for the other axes.
struct AlongAxis {
  Dims strides;  // 0 along the axis
  int64_t size = 1, stride = 1;
  int axis = 0;
};

AlongAxis AlongAxisOf(const KernelCall& call) {
  const Shape& x = call.inputs[0].spec->shape;
  AlongAxis along;
  along.strides = RowMajorStrides(x);
  along.axis = static_cast<int>(call.attrs->Int("axis"));
  if (x.rank() > 0) {
    along.size = x.dim(along.axis);
    along.stride = std::exchange(along.strides[along.axis], 0);
  }
  return along;
}

absl::Status RunGather(const KernelCall& call, KernelContext& context) {
  const TensorSpec& out = *call.output().spec;
  if (out.num_elements() == 0) return absl::OkStatus();
  const AlongAxis along = AlongAxisOf(call);
  const auto loop =
      MakeStridedLoop<1>(out.shape.rank(), out.shape.dims().data(), {along.strides.data()});
  return LaunchStatus(
      call, LaunchGather(call.inputs[0].data, IndicesAt(call, 1, along.axis, along.size),
                         along.stride, loop, call.output().data,
                         static_cast<int>(SizeOf(out.dtype)), call.context.check, context.stream));
}

// Copies input 0 to the output, unless both have the same memory.
absl::Status CopyTarget(const KernelCall& call, KernelContext& context) {
  if (call.output().data == call.inputs[0].data) return absl::OkStatus();
  const auto bytes = static_cast<size_t>(call.output().spec->size_bytes());
  return LaunchStatus(call, cudaMemcpyAsync(call.output().data, call.inputs[0].data, bytes,
                                            cudaMemcpyDeviceToDevice, context.stream));
}

// Updates of the output's rows.
struct Updates {
  RowUpdate* updates;  // not sorted
  int64_t count;
  int64_t rows;           // of the output
  int64_t row_bytes;      // of the output
  const Operand* values;  // if it is a scalar, all elements get this value
};

absl::Status ReplaceRows(const KernelCall& call, const Updates& updates, UpdateJob job,
                         cudaStream_t stream) {
  Unit unit;
  unit.MustDivide(updates.values->data);
  unit.MustDivide(call.output().data);
  unit.MustDivide(updates.row_bytes);
  const int64_t bytes = job.one_value ? SizeOf(call.output().spec->dtype) : unit.bytes();
  job.width = updates.row_bytes / bytes;
  return LaunchStatus(call, LaunchReplaceRows(job, updates.values->data, call.output().data,
                                              static_cast<int>(bytes), stream));
}

absl::Status CombineRows(const KernelCall& call, const Updates& updates, UpdateJob job,
                         cudaStream_t stream) {
  const std::string& reduce = call.attrs->String("reduce");
  const Combine combine = reduce == "mul"   ? Combine::kMul
                          : reduce == "max" ? Combine::kMax
                          : reduce == "min" ? Combine::kMin
                                            : Combine::kAdd;
  const CombineRowsLauncher launch = CombineRowsLaunchers()[DTypeNumber(call.output())];
  if (launch == nullptr) return NoKernelError(call);
  job.width = updates.row_bytes / SizeOf(call.output().spec->dtype);
  return LaunchStatus(call, launch(combine, job, updates.values->data, call.output().data, stream));
}

// Copies input 0 to the output, unless both have the same memory. Sorts the updates and applies
// them to the output.
absl::Status ApplyUpdates(const KernelCall& call, KernelContext& context, const Updates& updates) {
  TENSORD_RETURN_IF_ERROR(CopyTarget(call, context));
  TENSORD_ASSIGN_OR_RETURN(const Scratch scratch,
                           MakeScratch(context, SortScratchBytes(updates.count)));
  UpdateJob job;
  job.count = updates.count;
  job.one_value = updates.values->spec->shape.rank() == 0;
  TENSORD_RETURN_IF_ERROR(
      LaunchStatus(call, LaunchSortUpdates(updates.updates, updates.count, updates.rows,
                                           scratch.data(), &job.updates, context.stream)));
  return call.attrs->String("reduce") == "none" ? ReplaceRows(call, updates, job, context.stream)
                                                : CombineRows(call, updates, job, context.stream);
}

absl::StatusOr<Scratch> MakeUpdateScratch(KernelContext& context, int64_t count) {
  return MakeScratch(context, count * static_cast<int64_t>(sizeof(RowUpdate)));
}

absl::Status RunIndexPut(const KernelCall& call, KernelContext& context) {
  const auto tensors = static_cast<int>(call.inputs.size()) - 2;
  const IndexedRows rows = ReadIndexedRows(call, tensors);
  if (call.output().spec->num_elements() == 0) return CheckRows(call, context, tensors, rows);
  const int64_t count = rows.groups * rows.indices.num_elements();
  TENSORD_ASSIGN_OR_RETURN(const Scratch selected,
                           SelectRows(call, context, tensors, rows, rows.groups));
  TENSORD_ASSIGN_OR_RETURN(const Scratch memory, MakeUpdateScratch(context, count));
  auto* const updates = static_cast<RowUpdate*>(memory.data());
  TENSORD_RETURN_IF_ERROR(
      LaunchStatus(call, LaunchMakeUpdates(static_cast<const int64_t*>(selected.data()), updates,
                                           count, context.stream)));
  return ApplyUpdates(
      call, context,
      {updates, count, rows.groups * rows.rows, rows.row_bytes, &call.inputs.back()});
}

absl::Status RunScatter(const KernelCall& call, KernelContext& context) {
  const TensorSpec& out = *call.output().spec;
  if (out.num_elements() == 0) return absl::OkStatus();
  const Shape& indices = call.inputs[1].spec->shape;
  const Operand& values = call.inputs[2];
  const AlongAxis along = AlongAxisOf(call);
  const Dims value_strides = values.spec->shape.rank() == 0 ? Dims(indices.rank(), 0)
                                                            : RowMajorStrides(values.spec->shape);
  const auto loop = MakeStridedLoop<2>(indices.rank(), indices.dims().data(),
                                       {along.strides.data(), value_strides.data()});
  TENSORD_ASSIGN_OR_RETURN(const Scratch memory, MakeUpdateScratch(context, loop.size));
  auto* const updates = static_cast<RowUpdate*>(memory.data());
  TENSORD_RETURN_IF_ERROR(LaunchStatus(
      call, LaunchMakeScatterUpdates(IndicesAt(call, 1, along.axis, along.size), along.stride, loop,
                                     updates, call.context.check, context.stream)));
  return ApplyUpdates(call, context,
                      {updates, loop.size, out.num_elements(), SizeOf(out.dtype), &values});
}

}  // namespace

void AppendIndexingKernels(KernelTable& table) {
  table["index"] = RunIndex;
  table["gather"] = RunGather;
  table["index_put"] = RunIndexPut;
  table["scatter"] = RunScatter;
}

}  // namespace tensord::server::cuda
