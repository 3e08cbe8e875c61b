// Finds the ops of a program that can run as one kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "tensord/server/engine/fusion.h"
#include "tensord/server/engine/prepared_op.h"

namespace tensord::server {

// A step of a program: an op, or a chain of ops that run as one kernel.
struct ProgramStep {
  PreparedOpRef op;                       // the op, or the last op of the chain
  std::shared_ptr<PreparedKernel> chain;  // computes all of a chain; null for an op alone
  // These are values, as ProgramSpec numbers them.
  uint32_t result;  // the first one; those of the other outputs follow
  absl::InlinedVector<uint32_t, 3> operands;
  absl::InlinedVector<uint32_t, 2> last_uses;    // values that no later step reads
  absl::InlinedVector<uint32_t, 2> old_aliases;  // the aliases of these values

  uint32_t num_results() const { return static_cast<uint32_t>(op->outputs().size()); }
  // Returns the values that the step makes.
  absl::InlinedVector<uint32_t, 2> results() const {
    absl::InlinedVector<uint32_t, 2> values(num_results());
    std::iota(values.begin(), values.end(), result);
    return values;
  }
  bool runs_inline() const { return chain != nullptr ? chain->runs_inline() : op->runs_inline(); }
};

// Returns `ops` with fewer steps. A chain of elementwise ops becomes one step, if the device has a
// kernel for it and that kernel is faster. A linear and the activation that follows it become one
// step. A value between two fused ops has one reader, and is no output of the program. The step of
// a chain takes the place of its first op. All its operands exist there, so no value lives longer.
std::vector<ProgramStep> FuseSteps(std::vector<ProgramStep> ops, uint32_t num_inputs,
                                   absl::Span<const uint32_t> outputs, ChainKernels* chains);

}  // namespace tensord::server
