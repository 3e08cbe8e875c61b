// Lines along one axis of a tensor, for kernels that compute each line by itself.
#pragma once

#include <cstdint>

#include "tensord/server/device/cuda/kernels/reduction.h"

namespace tensord::server::cuda {

// A tensor as (outer, extent, inner). A line has the `extent` elements with one outer and one inner
// index. They are `inner` elements apart.
struct LineLoop {
  int64_t outer = 1, extent = 1, inner = 1;
  ReduceTile tile;  // has one split

  int64_t count() const { return outer * inner; }
};

// Sets the tile for a GPU with this number of multiprocessors.
void PlanLines(LineLoop& lines, int multiprocessors);

}  // namespace tensord::server::cuda
