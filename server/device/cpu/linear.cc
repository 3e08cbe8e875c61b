#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/gemm.h"
#include "tensord/server/device/cpu/kernel_table.h"

namespace tensord::server::cpu {
namespace {

absl::Status RunFused(const Context& ctx, const KernelCall& call, const BatchedGemm& gemm,
                      const void* bias, std::optional<UnaryFunction> activation) {
  TENSORD_ASSIGN_OR_RETURN(
      const std::shared_ptr<OneDnnProduct> product,
      ctx.onednn.Find(MakeOneDnnMatmul(ctx, gemm, bias != nullptr, activation)));
  return RunProduct(ctx, call, *product, gemm.a, gemm.b, bias, gemm.c);
}

// Takes float32 and float64.
absl::Status Run(const Context& ctx, const KernelCall& call, const BatchedGemm& gemm,
                 const void* bias, std::optional<UnaryFunction> activation) {
  if (gemm.dtype == DType::kFloat32 && gemm.k > 0 && PrefersOneDnn(gemm)) {
    if (OneDnnHas(activation)) return RunFused(ctx, call, gemm, bias, activation);
    TENSORD_RETURN_IF_ERROR(RunFused(ctx, call, gemm, bias, std::nullopt));
    RunEpilogue(ctx, gemm, nullptr, activation);
    return absl::OkStatus();
  }
  TENSORD_RETURN_IF_ERROR(RunGemm(ctx, call, gemm));
  RunEpilogue(ctx, gemm, bias, activation);
  return absl::OkStatus();
}

// Converts the operands to float32, computes everything in float32, and rounds the result.
absl::Status RunWide(const Context& ctx, const KernelCall& call, const BatchedGemm& gemm,
                     const void* bias, std::optional<UnaryFunction> activation) {
  TENSORD_ASSIGN_OR_RETURN(const Scratch wide, MakeScratch(call, bias == nullptr ? 0 : gemm.n * 4));
  if (bias != nullptr) Convert(ctx.loops, gemm.dtype, bias, DType::kFloat32, wide.data(), gemm.n);
  return RunWideBlocks(ctx, call, gemm, [&](const BatchedGemm& block, int64_t column) {
    return Run(ctx, call, block, bias == nullptr ? nullptr : wide.As<float>() + column, activation);
  });
}

}  // namespace

// (M,in)·(out,in)ᵀ -> (M,out). M is the product of all leading dimensions.
BatchedGemm LinearGemm(absl::Span<const Operand> inputs, const Operand& output) {
  const Shape& w = inputs[1].spec->shape;
  BatchedGemm gemm;
  gemm.dtype = output.spec->dtype;
  gemm.n = w.dim(0);
  gemm.k = w.dim(1);
  gemm.m = output.spec->num_elements() / gemm.n;
  gemm.transpose_b = true;
  gemm.a = inputs[0].data;
  gemm.b = inputs[1].data;
  gemm.c = output.data;
  gemm.a_elements = gemm.m * gemm.k;
  gemm.b_elements = gemm.k * gemm.n;
  return gemm;
}

absl::Status RunLinear(const Context& ctx, const KernelCall& call, const BatchedGemm& gemm,
                       const void* bias, std::optional<UnaryFunction> activation) {
  if (gemm.dtype == DType::kBFloat16 && PrefersOneDnn(gemm) && gemm.k > 0 &&
      OneDnnHas(activation)) {
    const absl::Status status = RunFused(ctx, call, gemm, bias, activation);
    if (!absl::IsUnimplemented(status)) return status;
  }
  if (Is16Bit(gemm.dtype)) return RunWide(ctx, call, gemm, bias, activation);
  return Run(ctx, call, gemm, bias, activation);
}

namespace {

absl::Status LinearKernel(const Context& ctx, const KernelCall& call) {
  const DType dtype = call.output().spec->dtype;
  for (const Operand& input : call.inputs) {
    if (input.spec->dtype != dtype || !IsFloating(dtype)) return NoKernel(call);
  }
  if (call.output().spec->num_elements() == 0) return absl::OkStatus();
  const void* bias = call.inputs.size() == 3 ? call.inputs[2].data : nullptr;
  return RunLinear(ctx, call, LinearGemm(call.inputs, call.output()), bias,
                   FindActivation(call.attrs->String("activation")));
}

}  // namespace

void AppendLinearKernels(KernelTable& table) { table["linear"] = LinearKernel; }

}  // namespace tensord::server::cpu
