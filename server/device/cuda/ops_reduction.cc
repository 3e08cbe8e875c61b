// Reductions and softmax.
#include <algorithm>
#include <optional>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/kernel_table.h"
#include "tensord/server/device/cuda/kernels/reduction.h"

namespace tensord::server::cuda {
namespace {

// Sets the loops over the kept axes and over the reduced axes.
void SplitAxes(const Shape& shape, const std::vector<int64_t>& axes, ReduceJob& job) {
  const Dims strides = RowMajorStrides(shape);
  Dims kept_extent, kept_stride, over_extent, over_stride;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const bool reduced = std::binary_search(axes.begin(), axes.end(), axis);
    (reduced ? over_extent : kept_extent).push_back(shape.dim(axis));
    (reduced ? over_stride : kept_stride).push_back(strides[axis]);
  }
  job.kept = MakeStridedLoop<1>(static_cast<int>(kept_extent.size()), kept_extent.data(),
                                {kept_stride.data()});
  job.over = MakeStridedLoop<1>(static_cast<int>(over_extent.size()), over_extent.data(),
                                {over_stride.data()});
}

// Returns true if the elements of one output lie closer together than those of neighbouring
// outputs.
bool LanesFast(const ReduceJob& job) {
  if (job.over.size <= 1) return false;
  if (job.kept.size <= 1) return true;
  return job.over.stride[0][job.over.rank - 1] < job.kept.stride[0][job.kept.rank - 1];
}

// Returns true if the innermost axis is contiguous, and its extent and all other strides are
// multiples of `elements`.
bool IsMadeOfPacks(const StridedLoop<1>& loop, int64_t elements) {
  const int last = loop.rank - 1;
  for (int d = 0; d < last; ++d) {
    if (loop.stride[0][d] % elements != 0) return false;
  }
  return loop.stride[0][last] == 1 && loop.extent[last] % elements == 0;
}

// Returns true if all strides are multiples of `elements`.
bool StepsArePacks(const StridedLoop<1>& loop, int64_t elements) {
  return std::all_of(loop.stride[0], loop.stride[0] + loop.rank,
                     [&](int64_t stride) { return stride % elements == 0; });
}

bool IsAligned(const void* address, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

// If a row were shorter, too many of its elements would lie before the first pack and after the
// last.
constexpr int64_t kMinPacksOfUnalignedRow = 8;

// Returns true if threads can load packs of `width` elements of one output.
bool PacksRows(const ReduceJob& job, int64_t element_bytes, int64_t width) {
  if (!IsAligned(job.in, element_bytes * width)) return false;
  if (IsMadeOfPacks(job.over, width) && StepsArePacks(job.kept, width)) return true;
  return job.over.rank == 1 && job.over.stride[0][0] == 1 &&
         job.over.size >= kMinPacksOfUnalignedRow * width;
}

// Returns true if threads can load packs that have one element of each of `columns` outputs.
bool PacksColumns(const ReduceJob& job, int64_t element_bytes, int64_t columns) {
  return IsAligned(job.in, element_bytes * columns) && IsMadeOfPacks(job.kept, columns) &&
         StepsArePacks(job.over, columns);
}

void PlanTile(ReduceJob& job, int64_t element_bytes, int multiprocessors) {
  const bool lanes_fast = LanesFast(job);
  if (lanes_fast) {
    const auto width = static_cast<int>(16 / element_bytes);
    job.packed = PacksRows(job, element_bytes, width);
    job.tile = PlanReduceTile(job.kept.size, job.over.size, lanes_fast, multiprocessors,
                              job.packed ? width : 1);
    return;
  }
  const int columns = ReduceColumns(element_bytes);
  job.packed = PacksColumns(job, element_bytes, columns);
  job.tile = PlanReduceTile(job.kept.size / (job.packed ? columns : 1), job.over.size, lanes_fast,
                            multiprocessors);
}

// Allocates `partials` if the tile needs them, and enters them in the job.
absl::Status MakePartials(KernelContext& context, ReduceJob& job,
                          std::optional<Scratch>& partials) {
  if (job.tile.splits == 1) return absl::OkStatus();
  TENSORD_ASSIGN_OR_RETURN(partials,
                           MakeScratch(context, job.kept.size * job.tile.splits * kPartialBytes));
  job.partials = partials->data();
  return absl::OkStatus();
}

absl::Status RunReduce(const ReduceKernel& kernel, const KernelCall& call, KernelContext& context) {
  if (call.output().spec->num_elements() == 0) return absl::OkStatus();
  const Operand& input = call.inputs[0];
  const ReduceLauncher launch = kernel.by_dtype[DTypeNumber(input)];
  if (launch == nullptr) return NoKernelError(call);
  ReduceJob job;
  job.in = input.data;
  job.out = call.output().data;
  SplitAxes(input.spec->shape, call.attrs->Ints("axes"), job);
  if (const AttrValue* ord = call.attrs->Find("ord")) job.ord = std::get<double>(*ord);
  job.out_bytes = static_cast<int>(SizeOf(call.output().spec->dtype));
  job.out_is_bool = IsBool(call.output().spec->dtype);
  PlanTile(job, SizeOf(input.spec->dtype), context.multiprocessors);
  std::optional<Scratch> partials;
  TENSORD_RETURN_IF_ERROR(MakePartials(context, job, partials));
  return LaunchStatus(call, launch(job, context.stream));
}

absl::Status RunVarMean(const KernelCall& call, KernelContext& context) {
  if (call.output().spec->num_elements() == 0) return absl::OkStatus();
  const Operand& input = call.inputs[0];
  const VarMeanLauncher launch = VarMeanKernels()[DTypeNumber(input)];
  if (launch == nullptr) return NoKernelError(call);
  VarMeanJob job;
  job.in = input.data;
  job.out = call.outputs[0].data;
  job.mean = call.outputs[1].data;
  job.correction = call.attrs->Float("correction");
  SplitAxes(input.spec->shape, call.attrs->Ints("axes"), job);
  const int64_t element_bytes = SizeOf(input.spec->dtype);
  const bool lanes_fast = LanesFast(job);
  const auto width = static_cast<int>(16 / element_bytes);
  job.packed = lanes_fast && PacksRows(job, element_bytes, width);
  job.tile = PlanReduceTile(job.kept.size, job.over.size, lanes_fast, context.multiprocessors,
                            job.packed ? width : 1);
  std::optional<Scratch> partials;
  TENSORD_RETURN_IF_ERROR(MakePartials(context, job, partials));
  return LaunchStatus(call, launch(job, context.stream));
}

absl::Status RunSoftmax(const SoftmaxKernel& kernel, const KernelCall& call,
                        KernelContext& context) {
  const TensorSpec& spec = *call.output().spec;
  if (spec.num_elements() == 0) return absl::OkStatus();
  const SoftmaxLauncher launch = kernel.by_dtype[DTypeNumber(call.output())];
  if (launch == nullptr) return NoKernelError(call);
  SoftmaxJob job;
  job.in = call.inputs[0].data;
  job.out = call.output().data;
  job.outer = job.axis = job.inner = 1;
  const int axis = static_cast<int>(call.attrs->Int("axis"));  // 0 for a scalar
  for (int d = 0; d < spec.shape.rank(); ++d) {
    (d < axis ? job.outer : d == axis ? job.axis : job.inner) *= spec.shape.dim(d);
  }
  const auto width = static_cast<int>(16 / SizeOf(spec.dtype));
  job.packed = job.inner == 1 && IsAligned(job.in, 16) && IsAligned(job.out, 16) &&
               (job.axis % width == 0 || job.axis >= kMinPacksOfUnalignedRow * width);
  job.tile = PlanReduceTile(job.outer * job.inner, job.axis, /*lanes_fast=*/job.inner == 1,
                            context.multiprocessors, job.packed ? width : 1);
  std::optional<Scratch> partials;
  if (job.tile.splits > 1) {
    TENSORD_ASSIGN_OR_RETURN(
        partials, MakeScratch(context, job.outer * job.inner * job.tile.splits * kPartialBytes));
    job.partials = partials->data();
  }
  return LaunchStatus(call, launch(job, context.stream));
}

void AppendReductions(KernelTable& table, std::span<const ReduceKernel> kernels) {
  for (const ReduceKernel& kernel : kernels) {
    table[kernel.op] = [&kernel](const KernelCall& call, KernelContext& context) {
      return RunReduce(kernel, call, context);
    };
  }
}

}  // namespace

void AppendReductionKernels(KernelTable& table) {
  AppendReductions(table, SumKernels());
  AppendReductions(table, ProdKernels());
  AppendReductions(table, ExtremumKernels());
  AppendReductions(table, ArgKernels());
  table["var_mean"] = RunVarMean;
  for (const SoftmaxKernel& kernel : SoftmaxKernels()) {
    table[kernel.op] = [&kernel](const KernelCall& call, KernelContext& context) {
      return RunSoftmax(kernel, call, context);
    };
  }
}

}  // namespace tensord::server::cuda
