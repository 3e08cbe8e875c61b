// Reads the attributes of the pooling ops.
#pragma once

#include <cstdint>

#include "tensord/common/attributes.h"
#include "tensord/common/shape.h"
#include "tensord/server/device/pool_geometry.h"

namespace tensord::server {

struct Pooling {
  PoolGeometry geometry;
  int64_t planes = 1;
};

// Returns the windows of a pooling op, or of its gradient. `x` is the shape of the op's input, and
// `pooled` that of its result. For a gradient, these are the shapes of gx and of its operand.
Pooling ReadPooling(const Attributes& attrs, const Shape& x, const Shape& pooled);

}  // namespace tensord::server
