// The walk over the operands of a broadcasting elementwise op.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "tensord/server/device/cpu/kernel.h"

namespace tensord::server::cpu {

inline constexpr int kMaxBroadcastInputs = 3;

// A run of the output's elements: input i is read from data[i], one element for each of the
// output's (step 1) or one for all (step 0).
struct BroadcastRun {
  const void* data[kMaxBroadcastInputs];
  int step[kMaxBroadcastInputs];
  void* output;
  int64_t n;
};

// Calls `fn` on runs that together cover the output, from all threads of the team. `fn` gets long
// runs where the shapes have them; where rows are short, inputs are gathered into longer ones
// first.
void ForEachRun(const Context& ctx, const KernelCall& call, int64_t grain,
                absl::FunctionRef<void(const BroadcastRun&)> fn);

}  // namespace tensord::server::cpu
