#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "tensord/server/device/cpu/kernels.h"

namespace tensord::server::cpu {
namespace {

// Only `constant` isn't here: its bytes are written by the engine.
const absl::flat_hash_map<absl::string_view, Kernel>& Table() {
  static const auto* const table = new absl::flat_hash_map<absl::string_view, Kernel>{
      {"neg", UnaryKernel<UnaryOp::kNeg>},
      {"abs", UnaryKernel<UnaryOp::kAbs>},
      {"relu", UnaryKernel<UnaryOp::kRelu>},
      {"exp", UnaryKernel<UnaryOp::kExp>},
      {"log", UnaryKernel<UnaryOp::kLog>},
      {"sqrt", UnaryKernel<UnaryOp::kSqrt>},
      {"rsqrt", UnaryKernel<UnaryOp::kRsqrt>},
      {"tanh", UnaryKernel<UnaryOp::kTanh>},
      {"sigmoid", UnaryKernel<UnaryOp::kSigmoid>},
      {"silu", UnaryKernel<UnaryOp::kSilu>},
      {"gelu", GeluKernel},
      {"cast", CastKernel},
      {"add", BinaryKernel<BinaryOp::kAdd>},
      {"sub", BinaryKernel<BinaryOp::kSub>},
      {"mul", BinaryKernel<BinaryOp::kMul>},
      {"div", BinaryKernel<BinaryOp::kDiv>},
      {"pow", BinaryKernel<BinaryOp::kPow>},
      {"maximum", BinaryKernel<BinaryOp::kMaximum>},
      {"minimum", BinaryKernel<BinaryOp::kMinimum>},
      {"eq", BinaryKernel<BinaryOp::kEq>},
      {"ne", BinaryKernel<BinaryOp::kNe>},
      {"lt", BinaryKernel<BinaryOp::kLt>},
      {"le", BinaryKernel<BinaryOp::kLe>},
      {"gt", BinaryKernel<BinaryOp::kGt>},
      {"ge", BinaryKernel<BinaryOp::kGe>},
      {"where", WhereKernel},
      {"matmul", MatmulKernel},
      {"linear", LinearKernel},
      {"sum", SumKernel},
      {"mean", MeanKernel},
      {"max", MaxKernel},
      {"min", MinKernel},
      {"norm", NormKernel},
      {"argmax", ArgmaxKernel},
      {"argmin", ArgminKernel},
      {"softmax", SoftmaxKernel},
      {"log_softmax", LogSoftmaxKernel},
      {"reshape", CopyKernel},
      {"permute", PermuteKernel},
      {"slice", SliceKernel},
      {"concat", ConcatKernel},
      {"broadcast_to", BroadcastToKernel},
      {"zeros", ZerosKernel},
      {"ones", OnesKernel},
      {"full", FullKernel},
      {"arange", ArangeKernel},
      {"eye", EyeKernel},
      {"uniform", UniformKernel},
      {"normal", NormalKernel},
  };
  return *table;
}

}  // namespace

Kernel FindKernel(absl::string_view op) {
  const auto it = Table().find(op);
  return it == Table().end() ? nullptr : it->second;
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
