// The loops of scatter that need no list of destinations.
#pragma once

#include "tensord/server/device/cpu/along_axis.h"
#include "tensord/server/device/cpu/kernel.h"
#include "tensord/server/device/cpu/updates.h"

namespace tensord::server::cpu {

// Runs scatter on call.output(), which has the elements of input 0 already. Each element gets its
// values in order of the indices, whatever the number of threads. `loop` has the values as its
// third tensor. It has offsets within the groups: `groups` parts of the output, which have indices
// and destinations of their own. Takes no 16-bit floats, except with Combine::kReplace. The indices
// must be in range.
void ScatterElements(const Context& ctx, const KernelCall& call, Combine combine,
                     const AlongAxisLoop& loop, int64_t groups);

}  // namespace tensord::server::cpu
