#include <cmath>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/cpu/reduce_step.h"
#include "tensord/server/device/cpu/strided_copy.h"

namespace tensord::server::cpu {
namespace {

// Returns the reduction that combines the results of an earlier step.
Reduction Following(Reduction reduction) {
  switch (reduction) {
    case Reduction::kMax:
    case Reduction::kMaxAbs:
      return Reduction::kMax;
    case Reduction::kMin:
    case Reduction::kMinAbs:
      return Reduction::kMin;
    default:
      return Reduction::kSum;
  }
}

// The accumulators of a reduction, one per output element.
struct Reduced {
  DType dtype = DType::kUnspecified;
  Scratch owned;
  void* data = nullptr;
  int64_t extent = 1;  // the number of elements of each reduction
};

// Reduces the axes of the call, one group of neighbours at a time, beginning with the last. If the
// output's elements have the accumulators' representation, the last step writes to call.output().
absl::StatusOr<Reduced> ReduceAxes(const Context& ctx, const KernelCall& call, Reduction reduction,
                                   double power) {
  const Operand& x = call.inputs[0];
  const int64_t outputs = call.output().spec->num_elements();
  Reduced result;
  result.dtype = ReduceAccumulator(ctx, reduction, x.spec->dtype);
  if (result.dtype == DType::kUnspecified) return NoKernel(call);
  const int64_t acc_size = SizeOf(result.dtype);
  const bool same_bits = result.dtype == call.output().spec->dtype ||
                         (result.dtype == DType::kUInt8 && IsBool(call.output().spec->dtype));
  std::vector<AxisGroup> groups = GroupAxes(x.spec->shape, call.attrs->Ints("axes"));
  int steps = 0;
  for (const AxisGroup& group : groups) steps += group.reduced ? 1 : 0;
  // All reduced axes have size 1. The term of each element must still be computed.
  if (steps == 0) {
    groups = {{true, 1}, {false, outputs}};
    steps = 1;
  }
  const void* source = x.data;
  DType source_dtype = x.spec->dtype;
  Scratch source_owned;
  while (steps-- > 0) {
    const ReduceShape shape = TakeLastReduced(groups);
    Scratch target_owned;
    if (steps == 0 && same_bits) {
      result.data = call.output().data;
    } else {
      TENSORD_ASSIGN_OR_RETURN(target_owned,
                               MakeScratch(ctx, call, shape.outer * shape.inner * acc_size));
      result.data = target_owned.data();
    }
    ReduceStep(ctx, reduction, source_dtype, source, shape, power, result.data);
    result.extent *= shape.extent;
    reduction = Following(reduction);
    source = result.data;
    source_dtype = result.dtype;
    source_owned = std::move(target_owned);
  }
  result.owned = std::move(source_owned);
  return result;
}

absl::Status Store(const Context& ctx, const KernelCall& call, const Reduced& reduced) {
  if (reduced.data != call.output().data) {
    ConvertInParallel(ctx, reduced.dtype, reduced.data, call.output().spec->dtype,
                      call.output().data, call.output().spec->num_elements());
  }
  return absl::OkStatus();
}

absl::Status Reduce(const Context& ctx, const KernelCall& call, Reduction reduction) {
  if (call.output().spec->num_elements() == 0) return absl::OkStatus();
  TENSORD_ASSIGN_OR_RETURN(const Reduced reduced, ReduceAxes(ctx, call, reduction, 0.0));
  return Store(ctx, call, reduced);
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
  return Store(ctx, call, sum);
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
  return Store(ctx, call, norm);
}

}  // namespace

void AppendReductionKernels(KernelTable& table) {
  table["sum"] = SumKernel;
  table["mean"] = MeanKernel;
  table["max"] = MaxKernel;
  table["min"] = MinKernel;
  table["norm"] = NormKernel;
}

}  // namespace tensord::server::cpu
