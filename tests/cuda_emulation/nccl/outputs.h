// The outputs of a collective operation.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tensord/tests/cuda_emulation/nccl/operation.h"

namespace tensord::nccl_emulation {

// Returns the output of each rank. `inputs[rank]` has InputBytes().
//
// Reductions go element by element in the order of the ranks. 16-bit floating types are accumulated
// in float and rounded once. Integers wrap around; their average is rounded towards zero. A maximum
// or minimum ignores NaN.
std::vector<std::string> ComputeOutputs(const Operation& op,
                                        absl::Span<const std::string* const> inputs);

}  // namespace tensord::nccl_emulation
