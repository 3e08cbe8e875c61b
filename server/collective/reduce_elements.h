// The elementwise part of reducing operations, by the CPU backend's vector loops.
#pragma once

#include <cstdint>

#include "tensord/common/dtype.h"
#include "tensord/server/collective/collective_op.h"

namespace tensord::server {

// out[i] = a[i] combined with b[i]; out may be a or b. float16 and bfloat16 are computed in float32
// and rounded, integers wrap around, of a maximum with a NaN comes a NaN. A mean is combined as a
// sum is, and then divided. `dtype` is one that PlanCollective lets through.
void ReduceElements(CollectiveReduction reduction, DType dtype, void* out, const void* a,
                    const void* b, int64_t elements);

// data[i] /= divisor. Floating dtypes.
void DivideElements(DType dtype, void* data, int64_t elements, int divisor);

}  // namespace tensord::server
