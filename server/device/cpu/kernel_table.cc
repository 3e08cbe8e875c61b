#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "tensord/server/device/cpu/elementwise.h"
#include "tensord/server/device/cpu/kernels.h"

namespace tensord::server::cpu {
namespace {

using Kind = ElementwiseOp::Kind;

struct Entry {
  Kernel kernel;
  ElementwiseOp elementwise;
  int64_t brief_elements = kGrainElements / 4;
};

// An op that takes a nanosecond an element, or less.
Entry Cheap(Kernel kernel) { return {kernel, {}, kGrainElements}; }

Entry Elementwise(Kind kind) { return {ElementwiseKernel, {kind, 0}}; }
Entry Elementwise(UnaryOp op) {
  return {ElementwiseKernel, {Kind::kUnary, static_cast<uint8_t>(op)}};
}
Entry Elementwise(BinaryOp op) {
  return {ElementwiseKernel, {Kind::kBinary, static_cast<uint8_t>(op)}};
}

// Only `constant` isn't here: its bytes are written by the engine.
const absl::flat_hash_map<absl::string_view, Entry>& Table() {
  static const auto* const table = new absl::flat_hash_map<absl::string_view, Entry>{
      {"neg", Elementwise(UnaryOp::kNeg)},
      {"abs", Elementwise(UnaryOp::kAbs)},
      {"relu", Elementwise(UnaryOp::kRelu)},
      {"exp", Elementwise(UnaryOp::kExp)},
      {"log", Elementwise(UnaryOp::kLog)},
      {"sqrt", Elementwise(UnaryOp::kSqrt)},
      {"rsqrt", Elementwise(UnaryOp::kRsqrt)},
      {"tanh", Elementwise(UnaryOp::kTanh)},
      {"sigmoid", Elementwise(UnaryOp::kSigmoid)},
      {"silu", Elementwise(UnaryOp::kSilu)},
      {"gelu", Elementwise(Kind::kGelu)},
      {"cast", Elementwise(Kind::kCast)},
      {"add", Elementwise(BinaryOp::kAdd)},
      {"sub", Elementwise(BinaryOp::kSub)},
      {"mul", Elementwise(BinaryOp::kMul)},
      {"div", Elementwise(BinaryOp::kDiv)},
      {"pow", Elementwise(BinaryOp::kPow)},
      {"maximum", Elementwise(BinaryOp::kMaximum)},
      {"minimum", Elementwise(BinaryOp::kMinimum)},
      {"eq", Elementwise(BinaryOp::kEq)},
      {"ne", Elementwise(BinaryOp::kNe)},
      {"lt", Elementwise(BinaryOp::kLt)},
      {"le", Elementwise(BinaryOp::kLe)},
      {"gt", Elementwise(BinaryOp::kGt)},
      {"ge", Elementwise(BinaryOp::kGe)},
      {"where", Elementwise(Kind::kWhere)},
      {"matmul", {MatmulKernel}},
      {"linear", {LinearKernel}},
      {"sum", Cheap(SumKernel)},
      {"mean", Cheap(MeanKernel)},
      {"max", Cheap(MaxKernel)},
      {"min", Cheap(MinKernel)},
      {"norm", {NormKernel}},
      {"argmax", {ArgmaxKernel}},
      {"argmin", {ArgminKernel}},
      {"softmax", Cheap(SoftmaxKernel)},
      {"log_softmax", Cheap(LogSoftmaxKernel)},
      {"reshape", Cheap(CopyKernel)},
      {"permute", Cheap(PermuteKernel)},
      {"slice", Cheap(SliceKernel)},
      {"concat", Cheap(ConcatKernel)},
      {"broadcast_to", Cheap(BroadcastToKernel)},
      {"zeros", Cheap(ZerosKernel)},
      {"ones", Cheap(OnesKernel)},
      {"full", Cheap(FullKernel)},
      {"arange", {ArangeKernel}},
      {"eye", {EyeKernel}},
      {"uniform", {UniformKernel}},
      {"normal", {NormalKernel}},
  };
  return *table;
}

}  // namespace

Kernel FindKernel(absl::string_view op) {
  const auto it = Table().find(op);
  return it == Table().end() ? nullptr : it->second.kernel;
}

int64_t BriefElements(absl::string_view op) {
  const auto it = Table().find(op);
  return it == Table().end() ? 0 : it->second.brief_elements;
}

ElementwiseOp FindElementwise(absl::string_view op) {
  const auto it = Table().find(op);
  return it == Table().end() ? ElementwiseOp() : it->second.elementwise;
}

absl::Status NoKernel(const KernelCall& call) {
  const TensorSpec& spec = call.inputs.empty() ? *call.output.spec : *call.inputs[0].spec;
  return absl::InternalError(
      absl::StrCat("cpu: no kernel for ", call.schema->name, " over ", DTypeName(spec.dtype)));
}

absl::StatusOr<Scratch> MakeScratch(const Context& ctx, const KernelCall& call,
                                    int64_t size_bytes) {
  if (size_bytes == 0) return Scratch();
  Scratch scratch(&ctx.pool, size_bytes);
  if (scratch.data() != nullptr) return scratch;
  return absl::ResourceExhaustedError(
      absl::StrCat(call.schema->name, ": the host has no ", size_bytes,
                   " bytes for intermediate values; delete tensors, or split the op"));
}

}  // namespace tensord::server::cpu
