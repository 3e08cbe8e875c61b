#include "tensord/server/device/cpu/conv.h"

#include <algorithm>
#include <cstring>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/cpu/onednn.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {
namespace {

// The number of multiplications that take one thread about 20 ms.
constexpr double kPartProducts = 1 << 30;
// The least number of multiplications for each thread. They take one thread about 20 us.
constexpr double kProductsPerThread = 1 << 20;
// If one image takes longer than this number of parts, matrix products compute it, because they
// check more often whether the op must stop.
constexpr int64_t kMaxPartsOfAnImage = 4;
// The approximate limit of the bytes of a part's images, so that copies in another layout or dtype
// take little memory.
constexpr int64_t kPartBytes = 32 << 20;
// A gradient of a weight is added up part by part. Such an addition takes about as long as this
// number of positions.
constexpr int64_t kMinPositionsOfAPart = 1024;

// A weight is packed if it isn't small, and if an element of it is multiplied with few elements.
constexpr int64_t kMinPackedWeightElements = 64 * 1024;
constexpr int64_t kMaxPackedPositions = 1024;

// With so few input channels, the blocked layouts of the gradient of the input consist mostly of
// padding.
constexpr int64_t kMaxChannelsOfPlainGradients = 4;

bool IsPointwise(const ConvGeometry& conv) {
  for (int a = 0; a < ConvGeometry::kAxes; ++a) {
    if (conv.kernel[a] != 1 || conv.stride[a] != 1 || conv.low[a] + conv.high[a] != 0) return false;
  }
  return true;
}

bool IsDepthwise(const ConvGeometry& conv) { return conv.groups > 1 && conv.group_in() == 1; }

// Returns the number of multiplications for an image. An int64 could overflow.
double ProductsOf(const ConvGeometry& conv) {
  return static_cast<double>(conv.out_channels * conv.out_elements()) *
         static_cast<double>(conv.group_in() * conv.taps());
}

}  // namespace

std::optional<ConvKind> FindConvKind(absl::string_view op) {
  if (op == "conv") return ConvKind::kForward;
  if (op == "conv_backward_input") return ConvKind::kBackwardInput;
  if (op == "conv_backward_weight") return ConvKind::kBackwardWeight;
  return std::nullopt;
}

ConvPlan::ConvPlan(const Context& ctx, ConvKind kind, const OpSchema* schema,
                   const Attributes& attrs, absl::Span<const TensorSpec> inputs,
                   const TensorSpec& output)
    : ctx_(ctx),
      kind_(kind),
      schema_(schema),
      output_(output),
      conv_(ReadConvGeometry(kind, attrs, inputs, output)),
      dtype_(output.dtype),
      compute_dtype_(output.dtype),
      has_bias_(inputs.size() == 3) {
  if (conv_.batch == 0) return;
  if (kind == ConvKind::kForward) activation_ = FindActivation(attrs.String("activation"));
  parts_[0].images = ImagesPerPart();
  parts_[1].images = conv_.batch % parts_[0].images;
  if (dtype_ == DType::kBFloat16 && MakePrimitives()) return;
  compute_dtype_ = ComputeDType(dtype_);
  if (MakePrimitives() || is_widened()) return;
  parts_[0].images = conv_.batch;  // there are no copies, so parts have no purpose
}

int64_t ConvPlan::ImagesPerPart() const {
  const ConvGeometry image = Images(1);
  const double by_work = kPartProducts * ctx_.team.threads() / ProductsOf(image);
  const double by_bytes =
      kPartBytes / 4.0 /
      (static_cast<double>(image.x_elements()) + static_cast<double>(image.y_elements()));
  auto images = static_cast<int64_t>(std::min({by_work, by_bytes, double(conv_.batch)}));
  if (kind_ == ConvKind::kBackwardWeight) {
    images = std::max(images, kMinPositionsOfAPart / image.out_elements());
  }
  images = std::clamp<int64_t>(images, 1, conv_.batch);
  const int64_t parts = (conv_.batch + images - 1) / images;
  return (conv_.batch + parts - 1) / parts;
}

ConvGeometry ConvPlan::Images(int64_t images) const {
  ConvGeometry conv = conv_;
  conv.batch = images;
  return conv;
}

bool ConvPlan::PrefersOneDnn() const {
  if (compute_dtype_ != DType::kFloat32 && compute_dtype_ != DType::kBFloat16) return false;
  if (!OneDnnHas(activation_)) return false;
  return ProductsOf(conv_) <= kMaxPartsOfAnImage * kPartProducts * ctx_.team.threads();
}

// Measured with oneDNN 2.6 and AVX-512: in most cases, the time of the copies is a few per cent,
// and the code for the plain layouts takes 1.3 to 3 times as long.
bool ConvPlan::PrefersPlainLayouts() const {
  if (IsDepthwise(conv_)) return false;
  if (IsPointwise(conv_)) return true;
  switch (kind_) {
    case ConvKind::kForward:
      return false;
    case ConvKind::kBackwardInput:
      return conv_.group_in() <= kMaxChannelsOfPlainGradients;
    case ConvKind::kBackwardWeight:
      return conv_.weight_elements() > conv_.x_elements() + conv_.y_elements();
  }
  return false;
}

absl::StatusOr<std::unique_ptr<OneDnnConv>> ConvPlan::MakePrimitive(int64_t images) const {
  OneDnnConvSpec spec;
  spec.kind = kind_;
  spec.conv = Images(images);
  spec.dtype = compute_dtype_;
  spec.chooses_layouts = !PrefersPlainLayouts();
  spec.has_bias = has_bias_;
  spec.activation = activation_;
  const double products = static_cast<double>(images) * ProductsOf(spec.conv);
  spec.threads = static_cast<int>(
      std::clamp(products / kProductsPerThread, 1.0, static_cast<double>(ctx_.team.threads())));
  absl::StatusOr<std::unique_ptr<OneDnnConv>> made = OneDnnConv::Make(spec);
  if (made.ok()) return made;
  spec.chooses_layouts = !spec.chooses_layouts;
  return OneDnnConv::Make(spec);
}

// Makes the primitives. Returns whether oneDNN can compute the op. After any failure, matrix
// products compute it.
bool ConvPlan::MakePrimitives() {
  if (!PrefersOneDnn()) return false;
  // 16-bit gradients of parts would be rounded before they are added.
  const bool is_sum = kind_ == ConvKind::kBackwardWeight && parts_[0].images < conv_.batch;
  if (is_sum && Is16Bit(compute_dtype_)) return false;
  for (Part& part : parts_) {
    if (part.images == 0) continue;
    auto made = MakePrimitive(part.images);
    if (!made.ok()) {
      for (Part& other : parts_) other.primitive = nullptr;
      return false;
    }
    part.primitive = *std::move(made);
  }
  return true;
}

int64_t ConvPlan::host_bytes() const {
  int64_t bytes = 0;
  for (const Part& part : parts_) bytes += part.primitive != nullptr ? OneDnnConv::kHostBytes : 0;
  return bytes;
}

std::shared_ptr<const PackedLayout> ConvPlan::PackableWeight() const {
  if (parts_[0].primitive == nullptr || is_widened()) return nullptr;
  if (conv_.weight_elements() < kMinPackedWeightElements) return nullptr;
  if (conv_.batch * conv_.out_elements() > kMaxPackedPositions) return nullptr;
  return parts_[0].primitive->weight_layout();
}

bool ConvPlan::IsPerImage(OperandIndex operand) const {
  switch (operand) {
    case kA:
      return true;
    case kB:
      return kind_ == ConvKind::kBackwardWeight;
    case kOutput:
      return kind_ != ConvKind::kBackwardWeight;
    default:
      return false;
  }
}

int64_t ConvPlan::Elements(OperandIndex operand) const {
  const int64_t x = conv_.in_channels * conv_.in_elements();
  const int64_t y = conv_.out_channels * conv_.out_elements();
  switch (operand) {
    case kA:
      return kind_ == ConvKind::kForward ? x : y;
    case kB:
      return kind_ == ConvKind::kBackwardWeight ? x : conv_.weight_elements();
    case kOutput:
      if (kind_ == ConvKind::kForward) return y;
      return kind_ == ConvKind::kBackwardInput ? x : conv_.weight_elements();
    default:
      return has_bias_ ? conv_.out_channels : 0;
  }
}

absl::StatusOr<ConvPlan::Buffers> ConvPlan::MakeBuffers(const KernelCall& call,
                                                        const ConvOperands& operands) const {
  Buffers buffers;
  const auto make = [&call](int64_t bytes) { return MakeScratch(call, bytes); };
  if (is_widened()) {
    for (const OperandIndex i : {kA, kB, kOutput, kBias}) {
      const int64_t count = IsPerImage(i) ? parts_[0].images : 1;
      TENSORD_ASSIGN_OR_RETURN(buffers.wide[i], make(count * Elements(i) * SizeOf(compute_dtype_)));
    }
    const auto widen = [&](OperandIndex i, const void* data) {
      ConvertInParallel(ctx_, dtype_, data, compute_dtype_, buffers.wide[i].data(), Elements(i));
    };
    if (!IsPerImage(kB)) widen(kB, operands.b);
    if (has_bias_) widen(kBias, operands.bias);
  }
  int64_t bytes = 0;
  for (const Part& part : parts_) {
    if (part.primitive != nullptr) bytes = std::max(bytes, part.primitive->scratch_bytes());
  }
  TENSORD_ASSIGN_OR_RETURN(buffers.primitive, make(bytes));
  const bool has_parts = parts_[0].primitive != nullptr && parts_[0].images < conv_.batch;
  if (has_parts && kind_ == ConvKind::kBackwardWeight) {
    TENSORD_ASSIGN_OR_RETURN(buffers.sum, make(Elements(kOutput) * SizeOf(compute_dtype_)));
  }
  return buffers;
}

absl::Status ConvPlan::Run(const LaunchContext& context, const ConvOperands& operands,
                           const void* packed_weight) {
  if (conv_.batch == 0) {  // the gradient of the weight is then zero
    if (!IsPerImage(kOutput)) std::memset(operands.output, 0, Elements(kOutput) * SizeOf(dtype_));
    return absl::OkStatus();
  }
  const Operand output = {&output_, operands.output};
  const KernelCall call = {context, schema_, nullptr, {}, absl::MakeConstSpan(&output, 1)};
  TENSORD_ASSIGN_OR_RETURN(Buffers buffers, MakeBuffers(call, operands));
  const bool has_parts = parts_[0].images < conv_.batch;
  if (has_parts && packed_weight == nullptr && parts_[0].primitive != nullptr &&
      parts_[0].primitive->weight_layout() != nullptr) {
    const PackedLayout& layout = *parts_[0].primitive->weight_layout();
    TENSORD_ASSIGN_OR_RETURN(buffers.weight, MakeScratch(call, layout.bytes()));
    const void* const weight = is_widened() ? buffers.wide[kB].data() : operands.b;
    TENSORD_RETURN_IF_ERROR(layout.Pack(weight, buffers.weight.data()));
    packed_weight = buffers.weight.data();
  }
  for (int64_t first = 0; first < conv_.batch; first += parts_[0].images) {
    TENSORD_RETURN_IF_ERROR(CheckStop());
    Part& part = parts_[conv_.batch - first < parts_[0].images ? 1 : 0];
    TENSORD_RETURN_IF_ERROR(RunPart(call, part, first, operands, packed_weight, buffers));
  }
  if (is_widened() && !IsPerImage(kOutput)) {
    ConvertInParallel(ctx_, compute_dtype_, buffers.wide[kOutput].data(), dtype_, operands.output,
                      Elements(kOutput));
  }
  return absl::OkStatus();
}

// Computes the images from `first_image` on.
absl::Status ConvPlan::RunPart(const KernelCall& call, Part& part, int64_t first_image,
                               const ConvOperands& operands, const void* packed_weight,
                               const Buffers& buffers) {
  const auto offset = [&](OperandIndex i) {
    return IsPerImage(i) ? first_image * Elements(i) * SizeOf(dtype_) : 0;
  };
  ConvOperands at = {Advance(operands.a, offset(kA)), Advance(operands.b, offset(kB)),
                     operands.bias, Advance(operands.output, offset(kOutput))};
  void* const output = at.output;
  if (is_widened()) {
    const auto widen = [&](OperandIndex i, const void* data) {
      ConvertInParallel(ctx_, dtype_, data, compute_dtype_, buffers.wide[i].data(),
                        part.images * Elements(i));
    };
    widen(kA, at.a);
    if (IsPerImage(kB)) widen(kB, at.b);
    at = {buffers.wide[kA].data(), buffers.wide[kB].data(), buffers.wide[kBias].data(),
          buffers.wide[kOutput].data()};
  }
  TENSORD_RETURN_IF_ERROR(Compute(call, part, at, packed_weight, buffers, first_image > 0));
  if (is_widened() && IsPerImage(kOutput)) {
    ConvertInParallel(ctx_, compute_dtype_, at.output, dtype_, output,
                      part.images * Elements(kOutput));
  }
  return absl::OkStatus();
}

// The operands have the dtype compute_dtype_. If `accumulate` is true, adds the gradient of the
// weight to the output.
absl::Status ConvPlan::Compute(const KernelCall& call, Part& part, const ConvOperands& operands,
                               const void* packed_weight, const Buffers& buffers, bool accumulate) {
  if (part.primitive == nullptr) {
    return RunConvProducts(ctx_, call, kind_, Images(part.images), compute_dtype_, operands,
                           activation_, accumulate);
  }
  accumulate = accumulate && kind_ == ConvKind::kBackwardWeight;
  const std::shared_ptr<const PackedLayout>& layout = part.primitive->weight_layout();
  const bool fits = packed_weight != nullptr && layout != nullptr &&
                    layout->IsSame(*parts_[0].primitive->weight_layout());
  void* const output = accumulate ? buffers.sum.data() : operands.output;
  TENSORD_RETURN_IF_ERROR(
      part.primitive->Run({operands.a, operands.b, operands.bias, fits ? packed_weight : nullptr,
                           output, buffers.primitive.data()}));
  if (!accumulate) return absl::OkStatus();
  const BinaryLoop add =
      ctx_.loops.binary[static_cast<int>(BinaryFunction::kAdd)][Index(compute_dtype_)];
  const int64_t size = SizeOf(compute_dtype_);
  ctx_.team.For(Elements(kOutput), kGrainElements, [&](int64_t begin, int64_t end) {
    char* const to = Advance(operands.output, begin * size);
    add(to, 1, Advance(output, begin * size), 1, to, end - begin);
  });
  return absl::OkStatus();
}

namespace {

absl::Status ConvKernel(const Context& ctx, const KernelCall& call) {
  absl::InlinedVector<TensorSpec, 3> inputs;
  for (const Operand& input : call.inputs) {
    if (input.spec->dtype != call.output().spec->dtype) return NoKernel(call);
    inputs.push_back(*input.spec);
  }
  if (!IsFloating(call.output().spec->dtype)) return NoKernel(call);
  ConvPlan plan(ctx, *FindConvKind(call.schema->name), call.schema, *call.attrs, inputs,
                *call.output().spec);
  const void* const bias = call.inputs.size() == 3 ? call.inputs[2].data : nullptr;
  return plan.Run(call.context,
                  {call.inputs[0].data, call.inputs[1].data, bias, call.output().data}, nullptr);
}

}  // namespace

void AppendConvKernels(KernelTable& table) {
  table["conv"] = ConvKernel;
  table["conv_backward_input"] = ConvKernel;
  table["conv_backward_weight"] = ConvKernel;
}

}  // namespace tensord::server::cpu
