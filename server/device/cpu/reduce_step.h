// The reduction of the middle of (outer, extent, inner): what every reduction over axes comes to.
#pragma once

#include <cstdint>
#include <vector>

#include "tensord/server/device/cpu/kernel.h"

namespace tensord::server::cpu {

// A shape's dimensions in alternating groups, kept and reduced, each merged into one.
struct AxisGroup {
  bool reduced;
  int64_t size;
};

// Dimensions of size 1 are left out. `axes` are sorted, non-negative.
std::vector<AxisGroup> GroupAxes(const Shape& shape, absl::Span<const int64_t> axes);

struct ReduceShape {
  int64_t outer;
  int64_t extent;
  int64_t inner;
};

// Takes the last reduced group out of `groups`: the shape of the reduction it stands for.
ReduceShape TakeLastReduced(std::vector<AxisGroup>& groups);

// (outer, extent, inner) -> (outer, inner), with elements of `dtype` and results of the dtype that
// ReduceAccumulator says. Sums are taken over fixed trees: leaves of 1,024 elements of a row, or of
// 32 rows, are added pairwise, so results don't depend on the number of threads and rounding errors
// grow with the logarithm of the extent.
void ReduceStep(const Context& ctx, Reduction reduction, DType dtype, const void* x,
                const ReduceShape& shape, double power, void* acc);

// kUnspecified where there is no such reduction over the dtype.
DType ReduceAccumulator(const Context& ctx, Reduction reduction, DType dtype);

}  // namespace tensord::server::cpu
