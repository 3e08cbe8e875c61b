// Convolution and its gradients, by cuDNN. If cuDNN has no engine for one, matrix products compute
// it.
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
                           ReusedScratch& workspace, KernelContext& context) {
  TENSORD_ASSIGN_OR_RETURN(const ConvPlan* const plan, context.dnn->FindPlan(problem, addresses));
  TENSORD_ASSIGN_OR_RETURN(void* const memory, workspace.Get(plan->workspace_bytes));
  return context.dnn->Execute(*plan, addresses, memory);
}

absl::Status Convolve(const ConvProblem& problem, const ConvAddresses& addresses,
                      const KernelCall& call, KernelContext& context) {
  ReusedScratch scratch(context);
  const absl::Status status = ConvolveByDnn(problem, addresses, scratch, context);
  if (!absl::IsUnimplemented(status)) return status;
  return ConvolveByProducts(problem, /*float32_out=*/false, addresses, scratch, call, context);
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

// A convolution with its epilogue: bias and activation.
struct ForwardConv {
  ConvProblem problem;  // without bias and ReLU
  ConvAddresses addresses;
  std::optional<UnaryFunction> activation;

  bool biased() const { return addresses.bias != nullptr; }
  bool is_16_bit() const { return SizeOf(problem.dtype) == 2; }
  ForwardConv WithoutBias() const { return {problem, addresses.WithoutBias(), activation}; }
  // Returns whether there is an epilogue.
  bool has_epilogue() const { return biased() || activation.has_value(); }
};

// Computes y += bias, then y = activation(y).
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

// Computes activation(conv + bias) of 16-bit dtypes in float32, and rounds the result once.
// Convolves some images at a time, and stores their float32 result in scratch memory. cuDNN has no
// engine that stores the float32 sums of 16-bit operands, so it gets float32 copies of them. It may
// use TensorFloat-32, which has all 16-bit values.
class WideConv {
 public:
  WideConv(const ForwardConv& conv, const KernelCall& call, KernelContext& context)
      : conv_(conv),
        images_(conv.problem.geometry.batch),
        x_elements_(conv.problem.geometry.x_elements() / images_),
        y_elements_(conv.problem.geometry.y_elements() / images_),
        call_(call),
        context_(context),
        x_(context),
        w_(context),
        y_(context),
        workspace_(context) {}

  absl::Status Run() {
    const LinearEpilogueLauncher launch_epilogue =
        FindLinearEpilogue(conv_.activation, DTypeNumber(conv_.problem.dtype));
    if (launch_epilogue == nullptr) return NoKernelError(call_);
    const int64_t image_bytes = std::max(x_elements_, y_elements_) * kFloatBytes;
    const int64_t at_once = std::clamp(kMaxConvScratchBytes / image_bytes, int64_t{1}, images_);
    TENSORD_ASSIGN_OR_RETURN(void* const y, y_.Get(at_once * y_elements_ * kFloatBytes));
    for (int64_t image = 0; image < images_; image += at_once) {
      TENSORD_RETURN_IF_ERROR(CheckStop());
      const int64_t images = std::min(at_once, images_ - image);
      TENSORD_RETURN_IF_ERROR(Convolve(image, images, y));
      const BiasAxes axes(conv_.problem.geometry, images);
      LinearEpilogueJob job;
      job.product = static_cast<const float*>(y);
      job.bias = conv_.addresses.bias;
      job.out = At(conv_.addresses.y, image * y_elements_);
      job.loop = MakeStridedLoop<1>(3, axes.extent, {axes.bias_strides});
      TENSORD_RETURN_IF_ERROR(LaunchStatus(call_, launch_epilogue(job, context_.stream)));
    }
    return absl::OkStatus();
  }

 private:
  static constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

  void* At(void* data, int64_t elements) const {
    return static_cast<char*>(data) + elements * SizeOf(conv_.problem.dtype);
  }

  // Convolves images [first, first + images) to `y`, float32.
  absl::Status Convolve(int64_t first, int64_t images, void* y) {
    ConvProblem part = conv_.problem;
    part.geometry.batch = images;
    void* const x = At(conv_.addresses.x, first * x_elements_);
    const absl::Status status = ConvolveCopies(part, x, y);
    if (!absl::IsUnimplemented(status)) return status;
    return ConvolveByProducts(part, /*float32_out=*/true, {x, conv_.addresses.w, y}, workspace_,
                              call_, context_);
  }

  // If cuDNN has no engine for the copies, returns UNIMPLEMENTED.
  absl::Status ConvolveCopies(ConvProblem part, void* x, void* y) {
    const int64_t w_elements = part.geometry.weight_elements();
    TENSORD_ASSIGN_OR_RETURN(void* const x_copy, x_.Get(part.geometry.x_elements() * kFloatBytes));
    TENSORD_ASSIGN_OR_RETURN(void* const w_copy, w_.Get(w_elements * kFloatBytes));
    if (!copied_w_) TENSORD_RETURN_IF_ERROR(Copy(conv_.addresses.w, w_copy, w_elements));
    copied_w_ = true;
    TENSORD_RETURN_IF_ERROR(Copy(x, x_copy, part.geometry.x_elements()));
    part.dtype = DType::kFloat32;
    part.allow_tf32 = true;
    return ConvolveByDnn(part, {x_copy, w_copy, y}, workspace_, context_);
  }

  absl::Status Copy(const void* from, void* to, int64_t elements) {
    const UnaryLauncher cast =
        CastLauncher(DTypeNumber(conv_.problem.dtype), DTypeNumber(DType::kFloat32));
    if (cast == nullptr) return NoKernelError(call_);
    return LaunchStatus(call_, cast(from, to, elements, context_.stream));
  }

  const ForwardConv& conv_;
  const int64_t images_, x_elements_, y_elements_;  // elements of an image
  const KernelCall& call_;
  KernelContext& context_;
  ReusedScratch x_, w_, y_, workspace_;
  bool copied_w_ = false;
};

// Tries, in this order: a plan of cuDNN with the bias and ReLU; for 16-bit dtypes, a convolution in
// float32; a plan without the epilogue; products of matrices.
absl::Status RunForward(const ForwardConv& conv, const KernelCall& call, KernelContext& context) {
  const bool is_relu = conv.activation == UnaryFunction::kRelu;
  const bool fuses = is_relu || (conv.biased() && !(conv.is_16_bit() && conv.activation));
  if (fuses) {
    ConvProblem fused = conv.problem;
    fused.bias = conv.biased();
    fused.relu = is_relu;
    ReusedScratch workspace(context);
    const absl::Status status = ConvolveByDnn(fused, conv.addresses, workspace, context);
    if (status.ok()) return is_relu ? status : AddEpilogue(conv.WithoutBias(), call, context);
    if (!absl::IsUnimplemented(status)) return status;
  }
  if (conv.is_16_bit() && conv.has_epilogue()) return WideConv(conv, call, context).Run();
  TENSORD_RETURN_IF_ERROR(Convolve(conv.problem, conv.addresses.WithoutBias(), call, context));
  return AddEpilogue(conv, call, context);
}

ConvProblem ProblemOf(ConvKind kind, const KernelCall& call, const Operand& x, const Operand& w,
                      const Operand& y) {
  ConvProblem problem;
  problem.kind = kind;
  problem.dtype = call.output().spec->dtype;
  problem.allow_tf32 = call.attrs->Bool("allow_tf32");
  problem.geometry = ReadConvGeometry(*call.attrs, x.spec->shape, w.spec->shape, y.spec->shape);
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
