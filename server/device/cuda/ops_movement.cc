// Ops that move elements and don't interpret them.
#include <algorithm>

#include "absl/types/span.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/kernel_table.h"
#include "tensord/server/device/cuda/kernels/movement.h"
#include "tensord/server/device/cuda/kernels/unit.h"

namespace tensord::server::cuda {
namespace {

constexpr int64_t kMinTransposed = 8;  // a shorter side would leave most of a tile empty

// A copy between strided operands. Strides and extents are in elements.
struct StridedCopy {
  const void* in;
  void* out;
  int64_t element_bytes;
  StridedLoop<2> loop;  // strides of (in, out)
};

// If the innermost axis is contiguous in both operands, makes the copy move larger units.
void WidenUnits(StridedCopy& copy) {
  StridedLoop<2>& loop = copy.loop;
  const int last = loop.rank - 1;
  if (loop.stride[0][last] != 1 || loop.stride[1][last] != 1) return;
  Unit unit;
  unit.MustDivide(copy.in);
  unit.MustDivide(copy.out);
  unit.MustDivide(loop.extent[last] * copy.element_bytes);
  for (int d = 0; d < last; ++d) {
    unit.MustDivide(loop.stride[0][d] * copy.element_bytes);
    unit.MustDivide(loop.stride[1][d] * copy.element_bytes);
  }
  const int64_t factor = unit.bytes() / copy.element_bytes;
  if (factor <= 1) return;
  int64_t extent[kMaxLoopRank], in_stride[kMaxLoopRank], out_stride[kMaxLoopRank];
  for (int d = 0; d <= last; ++d) {
    extent[d] = d == last ? loop.extent[d] / factor : loop.extent[d];
    in_stride[d] = d == last ? 1 : loop.stride[0][d] / factor;
    out_stride[d] = d == last ? 1 : loop.stride[1][d] / factor;
  }
  loop = MakeStridedLoop<2>(loop.rank, extent, {in_stride, out_stride});
  copy.element_bytes = unit.bytes();
}

// If the output is contiguous along the loop's last axis and the input along another axis, the copy
// is a batch of transpositions of these two axes. Returns false if it isn't, or if it is too small
// to be faster as a transposition.
bool AsTranspose(const StridedCopy& copy, TransposeJob* job) {
  const StridedLoop<2>& loop = copy.loop;
  const int last = loop.rank - 1;
  if (copy.element_bytes > 8 || loop.stride[1][last] != 1 || loop.stride[0][last] == 1) {
    return false;
  }
  const auto* dense = std::find(loop.stride[0], loop.stride[0] + last, 1);
  const int row_axis = static_cast<int>(dense - loop.stride[0]);
  if (row_axis == last || loop.extent[row_axis] < kMinTransposed ||
      loop.extent[last] < kMinTransposed) {
    return false;
  }
  job->rows = loop.extent[row_axis];
  job->columns = loop.extent[last];
  job->in_column_stride = loop.stride[0][last];
  job->out_row_stride = loop.stride[1][row_axis];
  int64_t extent[kMaxLoopRank], in_stride[kMaxLoopRank], out_stride[kMaxLoopRank];
  int rank = 0;
  for (int d = 0; d < last; ++d) {
    if (d == row_axis) continue;
    extent[rank] = loop.extent[d];
    in_stride[rank] = loop.stride[0][d];
    out_stride[rank++] = loop.stride[1][d];
  }
  job->batch = MakeStridedLoop<2>(rank, extent, {in_stride, out_stride});
  return true;
}

cudaError_t Run(StridedCopy copy, cudaStream_t stream) {
  TransposeJob transpose;
  if (AsTranspose(copy, &transpose)) {
    return LaunchTranspose(copy.in, copy.out, static_cast<int>(copy.element_bytes), transpose,
                           stream);
  }
  WidenUnits(copy);
  return LaunchStridedCopy(copy.in, copy.out, static_cast<int>(copy.element_bytes), copy.loop,
                           stream);
}

// out[i] = in[first + i · in_strides] for each index i of the output.
absl::Status Gather(const KernelCall& call, KernelContext& context, int64_t first,
                    const Dims& in_strides) {
  const TensorSpec& out = *call.output().spec;
  if (out.num_elements() == 0) return absl::OkStatus();
  const int64_t element_bytes = SizeOf(out.dtype);
  const Dims out_strides = RowMajorStrides(out.shape);
  return LaunchStatus(call, Run({call.inputs[0].As<char>() + first * element_bytes,
                                 call.output().data, element_bytes,
                                 MakeStridedLoop<2>(out.shape.rank(), out.shape.dims().data(),
                                                    {in_strides.data(), out_strides.data()})},
                                context.stream));
}

// Copies the input. The engine doesn't launch it if the output can be an alias of the input.
absl::Status RunReshape(const KernelCall& call, KernelContext& context) {
  const auto bytes = static_cast<size_t>(call.output().spec->size_bytes());
  if (bytes == 0) return absl::OkStatus();
  return LaunchStatus(call, cudaMemcpyAsync(call.output().data, call.inputs[0].data, bytes,
                                            cudaMemcpyDeviceToDevice, context.stream));
}

absl::Status RunPermute(const KernelCall& call, KernelContext& context) {
  const Dims own = RowMajorStrides(call.inputs[0].spec->shape);
  Dims strides;
  for (int64_t axis : call.attrs->Ints("axes")) strides.push_back(own[axis]);
  return Gather(call, context, 0, strides);
}

absl::Status RunSlice(const KernelCall& call, KernelContext& context) {
  Dims strides = RowMajorStrides(call.inputs[0].spec->shape);
  int64_t first = 0;
  for (size_t axis = 0; axis < strides.size(); ++axis) {
    first += call.attrs->Ints("starts")[axis] * strides[axis];
    // If there is one element, its step isn't used. Otherwise the product can't overflow.
    if (call.output().spec->shape.dim(axis) != 1) strides[axis] *= call.attrs->Ints("steps")[axis];
  }
  return Gather(call, context, first, strides);
}

absl::Status RunBroadcastTo(const KernelCall& call, KernelContext& context) {
  return Gather(call, context, 0,
                BroadcastStrides(call.inputs[0].spec->shape, call.output().spec->shape));
}

absl::Status RunAsStrided(const KernelCall& call, KernelContext& context) {
  const std::vector<int64_t>& strides = call.attrs->Ints("strides");
  return Gather(call, context, call.attrs->Int("offset"), Dims(strides.begin(), strides.end()));
}

// Copies input 0, unless the output has its memory, and then the values to the view.
absl::Status RunAsStridedScatter(const KernelCall& call, KernelContext& context) {
  const Operand& values = call.inputs[1];
  const Operand& out = call.output();
  if (out.data != call.inputs[0].data) TENSORD_RETURN_IF_ERROR(RunReshape(call, context));
  const Shape& shape = values.spec->shape;
  if (shape.num_elements() == 0) return absl::OkStatus();
  const int64_t element_bytes = SizeOf(values.spec->dtype);
  const Dims value_strides = RowMajorStrides(shape);
  return LaunchStatus(
      call, Run({values.data, out.AsMutable<char>() + call.attrs->Int("offset") * element_bytes,
                 element_bytes,
                 MakeStridedLoop<2>(shape.rank(), shape.dims().data(),
                                    {value_strides.data(), call.attrs->Ints("strides").data()})},
                context.stream));
}

// Describes the inputs as matrices of bytes that have a row for each index before the axis. Makes
// `unit` divide all addresses and widths.
void CollectParts(const KernelCall& call, int axis, std::vector<ConcatJob::Part>& parts,
                  Unit& unit) {
  const Shape& out = call.output().spec->shape;
  int64_t inner_bytes = SizeOf(call.output().spec->dtype);
  for (int d = axis + 1; d < out.rank(); ++d) inner_bytes *= out.dim(d);
  int64_t column = 0;
  for (const Operand& input : call.inputs) {
    const int64_t width = input.spec->shape.dim(axis) * inner_bytes;
    if (width == 0) continue;
    parts.push_back({input.data, width, column});
    unit.MustDivide(input.data);
    unit.MustDivide(width);
    column += width;
  }
}

absl::Status RunConcat(const KernelCall& call, KernelContext& context) {
  const Shape& out = call.output().spec->shape;
  if (out.num_elements() == 0) return absl::OkStatus();
  const int axis = static_cast<int>(call.attrs->Int("axis"));
  std::vector<ConcatJob::Part> parts;
  Unit unit;
  unit.MustDivide(call.output().data);
  CollectParts(call, axis, parts, unit);
  const int64_t unit_bytes = unit.bytes();
  ConcatJob job;
  job.out = call.output().data;
  job.rows = 1;
  for (int d = 0; d < axis; ++d) job.rows *= out.dim(d);
  job.pitch = call.output().spec->size_bytes() / job.rows / unit_bytes;
  for (size_t first = 0; first < parts.size(); first += ConcatJob::kMaxParts) {
    job.count = static_cast<int>(std::min<size_t>(ConcatJob::kMaxParts, parts.size() - first));
    for (int i = 0; i < job.count; ++i) {
      const ConcatJob::Part& part = parts[first + i];
      job.parts[i] = {part.data, part.width / unit_bytes, part.column / unit_bytes};
    }
    const cudaError_t error = LaunchConcat(job, static_cast<int>(unit_bytes), context.stream);
    if (error != cudaSuccess) return LaunchStatus(call, error);
  }
  return absl::OkStatus();
}

}  // namespace

void AppendMovementKernels(KernelTable& table) {
  table["reshape"] = RunReshape;
  table["permute"] = RunPermute;
  table["slice"] = RunSlice;
  table["broadcast_to"] = RunBroadcastTo;
  table["concat"] = RunConcat;
  table["as_strided"] = RunAsStrided;
  table["as_strided_scatter"] = RunAsStridedScatter;
  table["bitcast"] = RunReshape;
}

}  // namespace tensord::server::cuda
