// Reductions and softmax.
#include <algorithm>
#include <optional>

#include "tensord/common/status_macros.h"
#include "tensord/server/device/cuda/kernel_table.h"
#include "tensord/server/device/cuda/kernels/reduction.h"

namespace tensord::server::cuda {
namespace {

// The loops over the axes that stay and over those that go.
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

// Whether the elements of one output lie closer together than those of neighbouring outputs.
bool LanesFast(const ReduceJob& job) {
  if (job.over.size <= 1) return false;
  if (job.kept.size <= 1) return true;
  return job.over.stride[0][job.over.rank - 1] < job.kept.stride[0][job.kept.rank - 1];
}

absl::Status RunReduce(const ReduceKernel& kernel, const KernelCall& call, KernelContext& context) {
  if (call.output.spec->num_elements() == 0) return absl::OkStatus();
  const Operand& input = call.inputs[0];
  const ReduceLauncher launch = kernel.by_dtype[DTypeNumber(input)];
  if (launch == nullptr) return NoKernelError(call);
  ReduceJob job;
  job.in = input.data;
  job.out = call.output.data;
  SplitAxes(input.spec->shape, call.attrs->Ints("axes"), job);
  if (const AttrValue* ord = call.attrs->Find("ord")) job.ord = std::get<double>(*ord);
  job.tile = PlanReduceTile(job.kept.size, job.over.size, LanesFast(job), context.multiprocessors);
  std::optional<Scratch> partials;
  if (job.tile.splits > 1) {
    TENSORD_ASSIGN_OR_RETURN(partials,
                             MakeScratch(context, job.kept.size * job.tile.splits * kPartialBytes));
    job.partials = partials->data();
  }
  return LaunchStatus(call, launch(job, context.stream));
}

absl::Status RunSoftmax(const SoftmaxKernel& kernel, const KernelCall& call,
                        KernelContext& context) {
  const TensorSpec& spec = *call.output.spec;
  if (spec.num_elements() == 0) return absl::OkStatus();
  const SoftmaxLauncher launch = kernel.by_dtype[DTypeNumber(call.output)];
  if (launch == nullptr) return NoKernelError(call);
  SoftmaxJob job;
  job.in = call.inputs[0].data;
  job.out = call.output.data;
  job.outer = job.axis = job.inner = 1;
  const int axis = static_cast<int>(call.attrs->Int("axis"));  // 0 for a scalar
  for (int d = 0; d < spec.shape.rank(); ++d) {
    (d < axis ? job.outer : d == axis ? job.axis : job.inner) *= spec.shape.dim(d);
  }
  job.tile = PlanReduceTile(job.outer * job.inner, job.axis, /*lanes_fast=*/job.inner == 1,
                            context.multiprocessors);
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
  AppendReductions(table, ExtremumKernels());
  AppendReductions(table, ArgKernels());
  for (const SoftmaxKernel& kernel : SoftmaxKernels()) {
    table[kernel.op] = [&kernel](const KernelCall& call, KernelContext& context) {
      return RunSoftmax(kernel, call, context);
    };
  }
}

}  // namespace tensord::server::cuda
