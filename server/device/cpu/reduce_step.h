// The reduction of the middle of three axes (outer, extent, inner). Each reduction over axes is a
// sequence of such steps.
#pragma once

#include <cstdint>
#include <vector>

#include "tensord/server/device/cpu/kernel.h"

namespace tensord::server::cpu {

// Neighbouring dimensions that are all reduced or all kept, merged into one.
struct AxisGroup {
  bool reduced;
  int64_t size;
};

// Returns a shape's groups, alternately kept and reduced. Drops dimensions of size 1. `axes`, the
// reduced axes, must be sorted and not negative.
std::vector<AxisGroup> GroupAxes(const Shape& shape, absl::Span<const int64_t> axes);

struct ReduceShape {
  int64_t outer;
  int64_t extent;
  int64_t inner;
};

// Removes the last reduced group from `groups`, and returns the shape of its reduction. There must
// be one.
ReduceShape TakeLastReduced(std::vector<AxisGroup>& groups);

// Reduces (outer, extent, inner) to (outer, inner). The elements have `dtype`, or are Moments if it
// is kUnspecified. The results are the accumulators of ReductionLoopsOf(). Sums are computed in
// fixed trees: leaves of 1,024 elements of a row, or of 32 rows, are added pairwise. So results
// don't depend on the number of threads, and rounding errors grow with the logarithm of the extent.
// `power` is the exponent of kSumPowers.
void ReduceStep(const Context& ctx, Reduction reduction, DType dtype, const void* x,
                const ReduceShape& shape, double power, void* acc);

// Returns the loops of a reduction over `dtype`. If there is no such reduction, they are null.
const ReductionLoops& ReductionLoopsOf(const Context& ctx, Reduction reduction, DType dtype);

}  // namespace tensord::server::cpu
