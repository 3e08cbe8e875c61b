// Reads the attributes of the ops of pooling.
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

// Returns the windows of an op of pooling, or of its gradient. `x` is the shape of the tensor whose
// windows are taken, and `pooled` that of the windows.
Pooling PoolingOf(const Attributes& attrs, const Shape& x, const Shape& pooled);

}  // namespace tensord::server
