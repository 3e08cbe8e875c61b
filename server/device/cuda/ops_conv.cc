// Convolution and its gradients, by cuDNN. If cuDNN has no engine for one, it is computed as products
// of matrices.
#include <algorithm>
#include <optional>
#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/conv_attributes.h"
#include "tensord/server/device/cuda/conv_products.h"
#include "tensord/server/device/cuda/kernel_table.h"
#include "tensord/server/device/cuda/kernels/elementwise.h"
#include "tensord/server/device/cuda/kernels/linear_epilogue.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cuda {
namespace {

// If cuDNN has no engine for the problem, enqueues nothing and returns UNIMPLEMENTED.
absl::Status ConvolveByDnn(const ConvProblem& problem, const ConvAddresses& addresses,
                           KernelContext& context) {
  TENSORD_ASSIGN_OR_RETURN(const ConvPlan* const plan, context.dnn->FindPlan(problem, addresses));
  if (plan->workspace_bytes == 0) return context.dnn->Execute(*plan, addresses, nullptr);
  TENSORD_ASSIGN_OR_RETURN(const Scratch workspace, MakeScratch(context, plan->workspace_bytes));
  return context.dnn->Execute(*plan, addresses, workspace.data());
}

absl::Status Convolve(const ConvProblem& problem, const ConvAddresses& addresses,
                      const KernelCall& call, KernelContext& context) {
  const absl::Status status = ConvolveByDnn(problem, addresses, context);
  if (!absl::IsUnimplemented(status)) return status;
  return ConvolveByProducts(problem, /*float32_out=*/false, addresses, call, context);
}

// The loop over (images, O, positions), with the strides of y and of the bias.
struct BiasAxes {
  BiasAxes(const ConvGeometry& g, int64_t images)
      : extent{images, g.out_channels, g.out_elements()},
        y_strides{g.out_channels * g.out_elements(), g.out_elements(), 1} {}
  const int64_t extent[3];
  const int64_t y_strides[3];
  const int64_t bias_strides[3] = {0, 1, 0};
};

// A convolution with what follows it.
struct ForwardConv {
  ConvProblem problem;  // without bias and ReLU
  ConvAddresses addresses;
  std::optional<UnaryFunction> activation;

  bool biased() const { return addresses.bias != nullptr; }
  bool is_16_bit() const { return SizeOf(problem.dtype) == 2; }
  // Returns whether something follows the convolution.
  bool has_epilogue() const { return biased() || activation.has_value(); }
};

// y += bias, then y = activation(y).
absl::Status AddEpilogue(const ForwardConv& conv, const KernelCall& call, KernelContext& context) {
  const int dtype = DTypeNumber(conv.problem.dtype);
  void* const y = conv.addresses.y;
  if (conv.biased()) {
    const BiasAxes axes(conv.problem.geometry, conv.problem.geometry.batch);
    const auto loop = MakeStridedLoop<2>(3, axes.extent, {axes.y_strides, axes.bias_strides});
    const BinaryLauncher add = FindBinaryLauncher(BinaryFunction::kAdd, dtype);
    if (add == nullptr) return NoKernelError(call);
    TENSORD_RETURN_IF_ERROR(
        LaunchStatus(call, add(y, conv.addresses.bias, y, loop, context.stream)));
  }
  if (!conv.activation.has_value()) return absl::OkStatus();
  const UnaryLauncher launch = FindUnaryLauncher(*conv.activation, dtype);
  if (launch == nullptr) return NoKernelError(call);
  return LaunchStatus(call, launch(y, y, conv.problem.geometry.y_elements(), context.stream));
}

// Computes conv + bias and, if it is the activation, ReLU by one plan of cuDNN, which rounds the
// result once. Applies other activations after that: cuDNN has no engines for most of them, nor
// engines that store the float32 sums of 16-bit operands.
absl::Status RunFused(const ForwardConv& conv, const KernelCall& call, KernelContext& context) {
  ForwardConv rest = conv;
  ConvProblem fused = conv.problem;
  fused.bias = conv.biased();
  fused.relu = conv.activation == UnaryFunction::kRelu;
  rest.addresses.bias = nullptr;
  if (fused.relu) rest.activation.reset();
  TENSORD_RETURN_IF_ERROR(ConvolveByDnn(fused, conv.addresses, context));
  return AddEpilogue(rest, call, context);
}

// For 16-bit dtypes. Computes activation(conv + bias) by products of matrices and rounds the result
// once. Convolves some images at a time, whose float32 result is stored in scratch memory.
absl::Status RunProductsInFloat32(const ForwardConv& conv, const KernelCall& call,
                                  KernelContext& context) {
  const LinearEpilogueLauncher launch_epilogue =
      FindLinearEpilogue(conv.activation, DTypeNumber(conv.problem.dtype));
  if (launch_epilogue == nullptr) return NoKernelError(call);
  ConvProblem part = conv.problem;
  ConvGeometry& g = part.geometry;
  const int64_t all_images = g.batch;
  const int64_t x_bytes = g.x_elements() / all_images * SizeOf(part.dtype);
  const int64_t y_elements = g.y_elements() / all_images;
  const int64_t float_bytes = y_elements * static_cast<int64_t>(sizeof(float));
  const int64_t at_once = std::clamp(kMaxConvScratchBytes / float_bytes, int64_t{1}, all_images);
  TENSORD_ASSIGN_OR_RETURN(const Scratch convolved, MakeScratch(context, at_once * float_bytes));
  for (int64_t image = 0; image < all_images; image += at_once) {
    TENSORD_RETURN_IF_ERROR(CheckStop());
    g.batch = std::min(at_once, all_images - image);
    const ConvAddresses addresses = {static_cast<char*>(conv.addresses.x) + image * x_bytes,
                                     conv.addresses.w, convolved.data(), nullptr};
    TENSORD_RETURN_IF_ERROR(
        ConvolveByProducts(part, /*float32_out=*/true, addresses, call, context));
    const BiasAxes axes(g, g.batch);
    LinearEpilogueJob job;
    job.product = static_cast<const float*>(convolved.data());
    job.bias = conv.addresses.bias;
    job.out = static_cast<char*>(conv.addresses.y) + image * y_elements * SizeOf(part.dtype);
    job.loop = MakeStridedLoop<1>(3, axes.extent, {axes.bias_strides});
    TENSORD_RETURN_IF_ERROR(LaunchStatus(call, launch_epilogue(job, context.stream)));
  }
  return absl::OkStatus();
}

// Tries, in this order: a plan of cuDNN with the bias and ReLU; a plan without them, whose result is
// rounded before them; products of matrices.
absl::Status RunForward(const ForwardConv& conv, const KernelCall& call, KernelContext& context) {
  const bool has_fused_plan = conv.biased() || conv.activation == UnaryFunction::kRelu;
  if (has_fused_plan) {
    const absl::Status status = RunFused(conv, call, context);
    if (!absl::IsUnimplemented(status)) return status;
  }
  const absl::Status status = ConvolveByDnn(conv.problem, conv.addresses, context);
  if (status.ok()) return AddEpilogue(conv, call, context);
  if (!absl::IsUnimplemented(status)) return status;
  if (conv.is_16_bit() && conv.has_epilogue()) return RunProductsInFloat32(conv, call, context);
  TENSORD_RETURN_IF_ERROR(
      ConvolveByProducts(conv.problem, /*float32_out=*/false, conv.addresses, call, context));
  return AddEpilogue(conv, call, context);
}

ConvProblem ProblemOf(ConvKind kind, const KernelCall& call, const Operand& x, const Operand& w,
                      const Operand& y) {
  ConvProblem problem;
  problem.kind = kind;
  problem.dtype = call.output().spec->dtype;
  problem.allow_tf32 = call.attrs->Bool("allow_tf32");
  problem.geometry = ConvGeometryOf(*call.attrs, x.spec->shape, w.spec->shape, y.spec->shape);
  return problem;
}

// (N,C,in…), (O,C/groups,kernel…), (O) -> (N,O,out…)
absl::Status RunConv(const KernelCall& call, KernelContext& context) {
  if (call.output().spec->num_elements() == 0) return absl::OkStatus();
  const Operand &x = call.inputs[0], &w = call.inputs[1], &y = call.output();
  ForwardConv conv;
  conv.problem = ProblemOf(ConvKind::kForward, call, x, w, y);
  conv.addresses = {x.data, w.data, y.data, call.inputs.size() < 3 ? nullptr : call.inputs[2].data};
  conv.activation = FindActivation(call.attrs->String("activation"));
  return WithOperands(call, RunForward(conv, call, context));
}

absl::Status RunConvBackwardInput(const KernelCall& call, KernelContext& context) {
  if (call.output().spec->num_elements() == 0) return absl::OkStatus();
  const Operand &x = call.output(), &w = call.inputs[1], &y = call.inputs[0];
  return WithOperands(call, Convolve(ProblemOf(ConvKind::kBackwardInput, call, x, w, y),
                                     {x.data, w.data, y.data}, call, context));
}

absl::Status RunConvBackwardWeight(const KernelCall& call, KernelContext& context) {
  const Operand &x = call.inputs[1], &w = call.output(), &y = call.inputs[0];
  if (w.spec->num_elements() == 0) return absl::OkStatus();
  const ConvProblem problem = ProblemOf(ConvKind::kBackwardWeight, call, x, w, y);
  if (problem.geometry.batch == 0) {
    const auto bytes = static_cast<size_t>(w.spec->size_bytes());
    return LaunchStatus(call, cudaMemsetAsync(w.data, 0, bytes, context.stream));
  }
  return WithOperands(call, Convolve(problem, {x.data, w.data, y.data}, call, context));
}

}  // namespace

void AppendConvKernels(KernelTable& table) {
  table["conv"] = RunConv;
  table["conv_backward_input"] = RunConvBackwardInput;
  table["conv_backward_weight"] = RunConvBackwardWeight;
}

}  // namespace tensord::server::cuda
