#include <cmath>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/cpu/reduce_axes.h"
#include "tensord/server/device/cpu/strided_copy.h"

namespace tensord::server::cpu {
namespace {

absl::Status Reduce(const Context& ctx, const KernelCall& call, Reduction reduction) {
  if (call.output().spec->num_elements() == 0) return absl::OkStatus();
  TENSORD_ASSIGN_OR_RETURN(const Reduced reduced, ReduceAxes(ctx, call, reduction, 0.0));
  return StoreReduced(ctx, call, reduced);
}

Reduction NormReduction(double ord) {
  if (ord == 1) return Reduction::kSumAbs;
  if (ord == 2) return Reduction::kSumSquares;
  if (ord == 0) return Reduction::kCountNonzero;
  if (std::isinf(ord)) return ord > 0 ? Reduction::kMaxAbs : Reduction::kMinAbs;
  return Reduction::kSumPowers;
}

absl::Status SumKernel(const Context& ctx, const KernelCall& call) {
  return Reduce(ctx, call, Reduction::kSum);
}

absl::Status ProdKernel(const Context& ctx, const KernelCall& call) {
  return Reduce(ctx, call, Reduction::kProd);
}

absl::Status CountNonzeroKernel(const Context& ctx, const KernelCall& call) {
  return Reduce(ctx, call, Reduction::kCount);
}

absl::Status MaxKernel(const Context& ctx, const KernelCall& call) {
  return Reduce(ctx, call, Reduction::kMax);
}

absl::Status MinKernel(const Context& ctx, const KernelCall& call) {
  return Reduce(ctx, call, Reduction::kMin);
}

absl::Status MeanKernel(const Context& ctx, const KernelCall& call) {
  const int64_t outputs = call.output().spec->num_elements();
  if (outputs == 0) return absl::OkStatus();
  TENSORD_ASSIGN_OR_RETURN(const Reduced sum, ReduceAxes(ctx, call, Reduction::kSum, 0.0));
  const BinaryLoop divide =
      ctx.loops.binary[static_cast<int>(BinaryFunction::kDiv)][Index(sum.dtype)];
  if (divide == nullptr) return NoKernel(call);
  const auto count = static_cast<double>(sum.extent);
  const auto count_f32 = static_cast<float>(count);
  const void* divisor =
      sum.dtype == DType::kFloat64 ? static_cast<const void*>(&count) : &count_f32;
  const int64_t size = SizeOf(sum.dtype);
  ctx.team.For(outputs, kGrainElements, [&](int64_t begin, int64_t end) {
    char* at = Advance(sum.data, begin * size);
    divide(at, 1, divisor, 0, at, end - begin);
  });
  return StoreReduced(ctx, call, sum);
}

absl::Status NormKernel(const Context& ctx, const KernelCall& call) {
  const int64_t outputs = call.output().spec->num_elements();
  if (outputs == 0) return absl::OkStatus();
  const double ord = call.attrs->Float("ord");
  const Reduction reduction = NormReduction(ord);
  TENSORD_ASSIGN_OR_RETURN(const Reduced norm, ReduceAxes(ctx, call, reduction, ord));
  const int f64 = Index(DType::kFloat64);
  const double root = 1.0 / ord;
  // The norm of no elements is 0. kMaxAbs and kMinAbs of no elements are infinite.
  const double zero = 0;
  if (norm.extent == 0) Fill(ctx, &zero, sizeof(zero), norm.data, outputs);
  ctx.team.For(outputs, kGrainElements / 8, [&](int64_t begin, int64_t end) {
    double* at = static_cast<double*>(norm.data) + begin;
    if (reduction == Reduction::kSumSquares) {
      ctx.loops.unary[static_cast<int>(UnaryFunction::kSqrt)][f64](at, at, end - begin);
    } else if (reduction == Reduction::kSumPowers) {
      ctx.loops.binary[static_cast<int>(BinaryFunction::kPow)][f64](at, 1, &root, 0, at,
                                                                    end - begin);
    }
  });
  return StoreReduced(ctx, call, norm);
}

}  // namespace

void AppendReductionKernels(KernelTable& table) {
  table["sum"] = SumKernel;
  table["prod"] = ProdKernel;
  table["count_nonzero"] = CountNonzeroKernel;
  table["mean"] = MeanKernel;
  table["max"] = MaxKernel;
  table["min"] = MinKernel;
  table["norm"] = NormKernel;
}

}  // namespace tensord::server::cpu
