// Updates of rows of 16-bit dtypes: float16, bfloat16, int16 and uint16.
#pragma once

#include "absl/status/status.h"
#include "tensord/server/device/cpu/isa/loops.h"
#include "tensord/server/device/cpu/kernel.h"
#include "tensord/server/device/cpu/updates.h"

namespace tensord::server::cpu {

// Does the same as ApplyUpdates() for a target of a 16-bit dtype. `combine` is a loop of
// ComputeDType() of this dtype. Sorts the updates by their rows, so that each row is converted and
// rounded once.
absl::Status Combine16BitRows(const Context& ctx, const KernelCall& call, BinaryLoop combine,
                              const Updates& updates);

}  // namespace tensord::server::cpu
