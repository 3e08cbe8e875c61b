// Scaled dot product attention and its gradient.
#include <algorithm>
#include <optional>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/kernel_table.h"
#include "tensord/server/device/cuda/kernels/attention.h"
#include "tensord/server/device/random_math.h"

namespace tensord::server::cuda {
namespace {

// Returns the dimensions of q before the rows.
Shape HeadsOf(const Shape& q) { return Shape(q.dims().first(q.rank() - 2)); }

// Returns the dimensions of a mask before the rows.
Shape MatricesOf(const Shape& mask) {
  return Shape(mask.dims().first(std::max(0, mask.rank() - 2)));
}

int64_t ElementsOfMatrix(const Shape& mask) {
  int64_t elements = 1;
  for (int d = std::max(0, mask.rank() - 2); d < mask.rank(); ++d) elements *= mask.dim(d);
  return elements;
}

StridedLoop<1> LoopOver(const Shape& shape, const Dims& strides) {
  return MakeStridedLoop<1>(shape.rank(), shape.dims().data(), {strides.data()});
}

void SetMask(const Operand& mask, const Shape& q, AttentionJob* job) {
  const Shape& shape = mask.spec->shape;
  const int axes = shape.rank();
  const int64_t width = axes < 1 ? 1 : shape.dim(axes - 1);
  job->mask = mask.data;
  job->mask_is_bool = mask.spec->dtype == DType::kBool;
  job->mask_key = width == 1 ? 0 : 1;
  job->mask_row = axes < 2 || shape.dim(axes - 2) == 1 ? 0 : width;
  Dims strides = BroadcastStrides(MatricesOf(shape), HeadsOf(q));
  for (int64_t& stride : strides) stride *= ElementsOfMatrix(shape);
  job->mask_of_head = LoopOver(HeadsOf(q), strides);
}

// Returns the job of sdpa or its gradient, without results. `q_input` is the number of the input q,
// and `optional` that of the first optional input.
AttentionJob MakeJob(const KernelCall& call, size_t q_input, size_t optional) {
  const Shape& q = call.inputs[q_input].spec->shape;
  const Shape& k = call.inputs[q_input + 1].spec->shape;
  const Shape& v = call.inputs[q_input + 2].spec->shape;
  const int rank = q.rank();
  AttentionJob job;
  job.q = call.inputs[q_input].data;
  job.k = call.inputs[q_input + 1].data;
  job.v = call.inputs[q_input + 2].data;
  job.items = HeadsOf(k).num_elements();
  if (rank >= 3) job.group = k.dim(rank - 3) == 0 ? 0 : q.dim(rank - 3) / k.dim(rank - 3);
  job.length = q.dim(rank - 2);
  job.keys = k.dim(rank - 2);
  job.depth = q.dim(rank - 1);
  job.value_depth = v.dim(rank - 1);
  job.scale = call.attrs->Float("scale");
  job.causal = call.attrs->Bool("causal");
  size_t next = optional;
  if (call.inputs.size() > next && call.inputs[next].spec->dtype != DType::kInt64) {
    SetMask(call.inputs[next++], q, &job);
  }
  const double p = call.attrs->Float("dropout_p");
  job.drops = p > 0;
  job.rule = MakeDropoutRule(p);
  if (call.inputs.size() > next) {
    job.source.state = call.inputs[next].As<uint64_t>();
  } else {
    job.source.stream = {static_cast<uint64_t>(call.attrs->Int("seed")),
                         static_cast<uint64_t>(call.attrs->Int("stream"))};
  }
  return job;
}

absl::Status RunSdpa(const KernelCall& call, KernelContext& context) {
  const AttentionLauncher launch = AttentionKernels()[DTypeNumber(call.inputs[0])];
  if (launch == nullptr) return NoKernelError(call);
  AttentionJob job = MakeJob(call, 0, 3);
  job.o = call.outputs[0].data;
  job.lse = call.outputs[1].data;
  return LaunchStatus(call, launch(job, context.stream));
}

// Returns the job of the mask's gradient, which is the last output.
AttentionMaskJob MakeMaskJob(const KernelCall& call, const AttentionJob& attention) {
  const Operand& gmask = call.outputs.back();
  const Shape heads = HeadsOf(call.inputs[1].spec->shape), given = MatricesOf(gmask.spec->shape);
  const Dims strides = RowMajorStrides(heads);
  // The axes that the mask has are its matrices. The other axes are the heads of a matrix.
  Shape kept, summed;
  Dims kept_strides, summed_strides;
  for (int d = 0; d < heads.rank(); ++d) {
    const int axis = d - (heads.rank() - given.rank());
    const bool has = axis >= 0 && given.dim(axis) == heads.dim(d);
    (has ? kept : summed).AppendDim(heads.dim(d));
    (has ? kept_strides : summed_strides).push_back(strides[d]);
  }
  AttentionMaskJob job;
  job.attention = attention;
  job.gmask = gmask.data;
  job.wide = gmask.spec->dtype != call.inputs[1].spec->dtype;
  job.elements = ElementsOfMatrix(gmask.spec->shape);
  job.first_head = LoopOver(kept, kept_strides);
  job.next_head = LoopOver(summed, summed_strides);
  // If the heads have no scores, the kernel needn't read them: there may be any number of heads.
  if (attention.length == 0 || attention.keys == 0) job.next_head.size = 0;
  return job;
}

absl::Status RunSdpaBackward(const KernelCall& call, KernelContext& context) {
  const Operand &q = call.inputs[1], &lse = call.inputs[5];
  const AttentionLauncher launch = AttentionBackwardKernels()[DTypeNumber(q)];
  if (launch == nullptr) return NoKernelError(call);
  AttentionJob job = MakeJob(call, 1, 6);
  job.g = call.inputs[0].data;
  job.o = call.inputs[4].data;
  job.lse = lse.data;
  job.gq = call.outputs[0].data;
  job.gk = call.outputs[1].data;
  job.gv = call.outputs[2].data;
  std::optional<Scratch> delta;
  if (lse.spec->num_elements() > 0) {
    TENSORD_ASSIGN_OR_RETURN(delta, MakeScratch(context, lse.spec->size_bytes()));
    job.delta = delta->data();
  }
  TENSORD_RETURN_IF_ERROR(LaunchStatus(call, launch(job, context.stream)));
  if (call.outputs.size() < 4) return absl::OkStatus();
  return LaunchStatus(
      call, AttentionMaskKernels()[DTypeNumber(q)](MakeMaskJob(call, job), context.stream));
}

}  // namespace

void AppendAttentionKernels(KernelTable& table) {
  table["sdpa"] = RunSdpa;
  table["sdpa_backward"] = RunSdpaBackward;
}

}  // namespace tensord::server::cuda
