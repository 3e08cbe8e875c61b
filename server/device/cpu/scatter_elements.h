// The loops of scatter that need no list of destinations.
#pragma once

#include "tensord/server/device/cpu/along_axis.h"
#include "tensord/server/device/cpu/index_check.h"
#include "tensord/server/device/cpu/kernel.h"
#include "tensord/server/device/cpu/updates.h"

namespace tensord::server::cpu {

// Runs scatter on call.output(), which has the elements of input 0 already. Each element gets its
// values in order of the indices, for any number of threads. `loop` has the values as its third
// tensor, and its offsets are within groups. A group is one of `groups` equal parts of the output
// and of the indices: indices of one part have destinations in the same part. Takes no 16-bit
// dtypes, except with Combine::kReplace. The indices must be in range.
void ScatterElements(const Context& ctx, const KernelCall& call, Combine combine,
                     const AlongAxisLoop& loop, int64_t groups);

// Returns whether ScatterGroups() takes this call, and is faster.
bool HasSmallGroups(const Context& ctx, const KernelCall& call, int64_t groups);

// Does the same as ScatterElements() for a call whose output has no elements yet, and has other
// memory than input 0. Checks the indices of each group, copies its elements of input 0, and
// updates them. So a group's elements are in the cache after their first use. If indices are out of
// range, check->status() returns the error afterwards.
void ScatterGroups(const Context& ctx, const KernelCall& call, Combine combine,
                   const AlongAxisLoop& loop, int64_t groups, IndexCheck* check);

}  // namespace tensord::server::cpu
