#include "tensord/server/device/cpu/reduce_axes.h"

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/reduce_step.h"

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
    case Reduction::kProd:
    case Reduction::kMoments:
      return reduction;
    default:
      return Reduction::kSum;
  }
}

}  // namespace

absl::StatusOr<Reduced> ReduceAxes(const Context& ctx, const KernelCall& call, Reduction reduction,
                                   double power) {
  const Operand& x = call.inputs[0];
  const int64_t outputs = call.output().spec->num_elements();
  Reduced result;
  const ReductionLoops& loops = ReductionLoopsOf(ctx, reduction, x.spec->dtype);
  if (loops.rows == nullptr) return NoKernel(call);
  result.dtype = loops.accumulator;
  const int64_t acc_size = loops.acc_bytes;
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
                               MakeScratch(call, shape.outer * shape.inner * acc_size));
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

absl::Status StoreReduced(const Context& ctx, const KernelCall& call, const Reduced& reduced) {
  if (reduced.data != call.output().data) {
    ConvertInParallel(ctx, reduced.dtype, reduced.data, call.output().spec->dtype,
                      call.output().data, call.output().spec->num_elements());
  }
  return absl::OkStatus();
}

}  // namespace tensord::server::cpu
