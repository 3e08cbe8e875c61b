// The elementwise part of reducing operations, by the CPU backend's vector loops.
#pragma once

#include <cstdint>

#include "tensord/common/dtype.h"
#include "tensord/server/communicator/collective_op.h"

namespace tensord::server {

// Computes out[i] from a[i] and b[i]; out may be a or b. float16 and bfloat16 are computed in
// float32 and rounded. Integers wrap. The maximum of a NaN and any value is a NaN. For a mean,
// computes the sum; call DivideElements() afterwards. `dtype` must be one that PlanCollective()
// accepts.
void ReduceElements(CollectiveReduction reduction, DType dtype, void* out, const void* a,
                    const void* b, int64_t elements);

// Divides each element by `divisor`. `dtype` must be floating.
void DivideElements(DType dtype, void* data, int64_t elements, int divisor);

}  // namespace tensord::server
