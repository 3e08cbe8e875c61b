// The reduction of the axes of an op.
#pragma once

#include "tensord/server/device/cpu/kernel.h"

namespace tensord::server::cpu {

// The accumulators of a reduction, one per element of the op's outputs.
struct Reduced {
  DType dtype = DType::kUnspecified;  // ReductionLoops::accumulator
  Scratch owned;
  void* data = nullptr;
  int64_t extent = 1;  // the number of elements of each reduction
};

// Reduces the attribute "axes" of the call's input, one group of neighbours at a time, beginning
// with the last. If the elements of the first output have the accumulators' representation, the
// last step writes to call.output(). ReduceStep() explains `power`. If there is no such reduction,
// returns NoKernel().
absl::StatusOr<Reduced> ReduceAxes(const Context& ctx, const KernelCall& call, Reduction reduction,
                                   double power);

// Converts the accumulators to call.output(), unless they are there already.
absl::Status StoreReduced(const Context& ctx, const KernelCall& call, const Reduced& reduced);

}  // namespace tensord::server::cpu
