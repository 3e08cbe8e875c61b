// Normalization, cross entropy and the gradient of softmax.
#include <algorithm>
#include <optional>
#include <vector>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/kernel_table.h"
#include "tensord/server/device/cuda/kernels/network.h"

namespace tensord::server::cuda {
namespace {

// Returns the lines along an axis of a tensor that has elements.
LineLoop LineLoopAlong(const Shape& shape, int64_t axis, const KernelContext& context) {
  LineLoop lines;
  for (int d = 0; d < shape.rank(); ++d) {
    (d < axis ? lines.outer : d == axis ? lines.extent : lines.inner) *= shape.dim(d);
  }
  PlanLines(lines, context.multiprocessors);
  return lines;
}

absl::Status RunSoftmaxBackward(const KernelCall& call, KernelContext& context) {
  const TensorSpec& spec = *call.output().spec;
  if (spec.num_elements() == 0) return absl::OkStatus();
  const SoftmaxBackwardLauncher launch = SoftmaxBackwardKernels()[DTypeNumber(call.output())];
  if (launch == nullptr) return NoKernelError(call);
  SoftmaxBackwardJob job;
  job.g = call.inputs[0].data;
  job.y = call.inputs[1].data;
  job.gx = call.output().data;
  job.log = call.attrs->Bool("log");
  job.lines = LineLoopAlong(spec.shape, call.attrs->Int("axis"), context);
  return LaunchStatus(call, launch(job, context.stream));
}

// Returns the normalized dimensions of x as rows.
LineLoop NormalizedRows(const KernelCall& call, const Shape& x, const KernelContext& context) {
  const int first = x.rank() - static_cast<int>(call.attrs->Int("normalized_rank"));
  LineLoop rows;
  for (int d = 0; d < x.rank(); ++d) (d < first ? rows.outer : rows.extent) *= x.dim(d);
  PlanLines(rows, context.multiprocessors);
  return rows;
}

absl::Status RunLayerNorm(const KernelCall& call, KernelContext& context) {
  const Operand& x = call.inputs[0];
  const LayerNormLauncher launch = LayerNormKernels()[DTypeNumber(x)];
  if (launch == nullptr) return NoKernelError(call);
  LayerNormJob job;
  job.lines = NormalizedRows(call, x.spec->shape, context);
  if (job.lines.count() == 0) return absl::OkStatus();
  job.x = x.data;
  if (call.inputs.size() > 1) job.weight = call.inputs[1].data;
  if (call.inputs.size() > 2) job.bias = call.inputs[2].data;
  job.y = call.outputs[0].data;
  if (call.attrs->Bool("center")) job.mean = call.outputs[1].data;
  job.rstd = call.outputs.back().data;
  job.eps = call.attrs->Float("eps");
  return LaunchStatus(call, launch(job, context.stream));
}

constexpr int64_t kMinRowsOfPart = 32, kMaxRowParts = 1024;

int64_t RoundUpDivide(int64_t n, int64_t by) { return (n + by - 1) / by; }

absl::Status RunLayerNormBackward(const KernelCall& call, KernelContext& context) {
  const Operand& x = call.inputs[1];
  const LayerNormBackwardLauncher launch = LayerNormBackwardKernels()[DTypeNumber(x)];
  if (launch == nullptr) return NoKernelError(call);
  LayerNormBackwardJob job;
  job.lines = NormalizedRows(call, x.spec->shape, context);
  if (job.lines.extent == 0) return absl::OkStatus();
  job.g = call.inputs[0].data;
  job.x = x.data;
  job.rstd = call.inputs[2].data;
  size_t weight = 3;
  if (call.attrs->Bool("center")) job.mean = call.inputs[weight++].data;
  if (call.inputs.size() > weight) job.weight = call.inputs[weight].data;
  void** const results[] = {&job.gx, &job.gw, &job.gb};
  const std::vector<int64_t>& gradients = call.attrs->Ints("gradients");
  for (size_t i = 0; i < gradients.size(); ++i) {
    *results[gradients[i]] = call.outputs[i].data;
    if (gradients[i] > 0) job.wide_parameters = call.outputs[i].spec->dtype != x.spec->dtype;
  }
  std::optional<Scratch> parts;
  if ((job.gw != nullptr || job.gb != nullptr) && job.lines.outer > 0) {
    job.rows_of_part = std::max(kMinRowsOfPart, RoundUpDivide(job.lines.outer, kMaxRowParts));
    job.parts_count = RoundUpDivide(job.lines.outer, job.rows_of_part);
    const int64_t size = x.spec->dtype == DType::kFloat64 ? 8 : 4;
    TENSORD_ASSIGN_OR_RETURN(parts,
                             MakeScratch(context, 2 * job.parts_count * job.lines.extent * size));
    job.parts = parts->data();
  }
  return LaunchStatus(call, launch(job, context.stream));
}

// Returns the job of cross_entropy or of its gradient, without the members that only one of them
// has. `target` is the position of the target among the inputs.
CrossEntropyJob MakeCrossEntropyJob(const KernelCall& call, const Operand& x, int target,
                                    const KernelContext& context) {
  CrossEntropyJob job;
  job.x = x.data;
  job.target = call.inputs[target].data;
  job.wide_target = call.inputs[target].spec->dtype == DType::kInt64;
  job.target_input = target;
  const size_t weight = target + 1;
  if (call.inputs.size() > weight) job.weight = call.inputs[weight].data;
  job.ignored = call.attrs->Int("ignore_index");
  job.smoothing = call.attrs->Float("label_smoothing");
  job.check = call.context.check;
  job.lines = LineLoopAlong(x.spec->shape, call.attrs->Int("axis"), context);
  return job;
}

absl::Status RunCrossEntropy(const KernelCall& call, KernelContext& context) {
  const Operand& x = call.inputs[0];
  if (x.spec->num_elements() == 0) return absl::OkStatus();
  const CrossEntropyLauncher launch = CrossEntropyKernels()[DTypeNumber(x)];
  if (launch == nullptr) return NoKernelError(call);
  CrossEntropyJob job = MakeCrossEntropyJob(call, x, 1, context);
  job.loss = call.outputs[0].data;
  job.lse = call.outputs[1].data;
  return LaunchStatus(call, launch(job, context.stream));
}

absl::Status RunCrossEntropyBackward(const KernelCall& call, KernelContext& context) {
  const Operand& x = call.inputs[1];
  if (x.spec->num_elements() == 0) return absl::OkStatus();
  const CrossEntropyLauncher launch = CrossEntropyKernels()[DTypeNumber(x)];
  if (launch == nullptr) return NoKernelError(call);
  CrossEntropyJob job = MakeCrossEntropyJob(call, x, 3, context);
  job.g = call.inputs[0].data;
  job.lse = call.inputs[2].data;
  job.gx = call.output().data;
  return LaunchStatus(call, launch(job, context.stream));
}

// Sets the members of the job that batch_norm and its gradient have in common.
void SetChannels(const KernelCall& call, const Operand& x, BatchNormJob& job) {
  const Shape& shape = x.spec->shape;
  job.x = x.data;
  job.training = call.attrs->Bool("training");
  job.channels = shape.dim(1);
  for (int d = 2; d < shape.rank(); ++d) job.run *= shape.dim(d);
  const int64_t extent[] = {shape.dim(0), job.channels, job.run};
  const int64_t images[] = {extent[0], extent[2]}, offsets[] = {job.channels * job.run, 1};
  const int64_t numbers[] = {0, 1, 0};
  job.of_channel = MakeStridedLoop<1>(2, images, {offsets});
  job.channel_of = MakeStridedLoop<1>(3, extent, {numbers});
}

absl::Status RunBatchNorm(const KernelCall& call, KernelContext& context) {
  const Operand& x = call.inputs[0];
  const BatchNormLauncher launch = BatchNormKernels()[DTypeNumber(x)];
  if (launch == nullptr) return NoKernelError(call);
  if (x.spec->num_elements() == 0) return absl::OkStatus();
  BatchNormJob job;
  SetChannels(call, x, job);
  job.y = call.outputs[0].data;
  job.running_mean = call.inputs[1].data;
  job.running_var = call.inputs[2].data;
  if (call.inputs.size() > 3) job.weight = call.inputs[3].data;
  if (call.inputs.size() > 4) job.bias = call.inputs[4].data;
  job.eps = call.attrs->Float("eps");
  job.momentum = call.attrs->Float("momentum");
  if (job.training) {
    job.mean = call.outputs[1].data;
    job.invstd = call.outputs[2].data;
    job.new_mean = call.outputs[3].data;
    job.new_var = call.outputs[4].data;
    job.wide_mean = call.outputs[3].spec->dtype != x.spec->dtype;
    job.wide_var = call.outputs[4].spec->dtype != x.spec->dtype;
  }
  return LaunchStatus(call, launch(job, context.stream));
}

absl::Status RunBatchNormBackward(const KernelCall& call, KernelContext& context) {
  const Operand& x = call.inputs[1];
  const BatchNormLauncher launch = BatchNormKernels()[DTypeNumber(x)];
  if (launch == nullptr) return NoKernelError(call);
  BatchNormJob job;
  SetChannels(call, x, job);
  if (job.channels == 0) return absl::OkStatus();
  job.g = call.inputs[0].data;
  job.mean = call.inputs[2].data;
  job.invstd = call.inputs[3].data;
  if (call.inputs.size() > 4) job.weight = call.inputs[4].data;
  void** const results[] = {&job.y, &job.gw, &job.gb};
  const std::vector<int64_t>& gradients = call.attrs->Ints("gradients");
  for (size_t i = 0; i < gradients.size(); ++i) {
    *results[gradients[i]] = call.outputs[i].data;
    if (gradients[i] > 0) job.wide_parameters = call.outputs[i].spec->dtype != x.spec->dtype;
  }
  TENSORD_ASSIGN_OR_RETURN(
      const Scratch sums,
      MakeScratch(context, 2 * job.channels * static_cast<int64_t>(sizeof(double))));
  job.sums = static_cast<double*>(sums.data());
  return LaunchStatus(call, launch(job, context.stream));
}

}  // namespace

void AppendNetworkKernels(KernelTable& table) {
  table["softmax_backward"] = RunSoftmaxBackward;
  table["batch_norm"] = RunBatchNorm;
  table["batch_norm_backward"] = RunBatchNormBackward;
  table["cross_entropy"] = RunCrossEntropy;
  table["cross_entropy_backward"] = RunCrossEntropyBackward;
  table["layer_norm"] = RunLayerNorm;
  table["layer_norm_backward"] = RunLayerNormBackward;
}

}  // namespace tensord::server::cuda
