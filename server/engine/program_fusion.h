// What of a program's ops can run as one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "tensord/server/engine/fusion.h"
#include "tensord/server/engine/prepared_op.h"

namespace tensord::server {

// What a program runs at a time: an op, or a chain of them.
struct ProgramStep {
  PreparedOpRef op;                       // the op's, or that of a chain's last
  std::shared_ptr<PreparedKernel> chain;  // computes all of a chain; null for an op alone
  uint32_t result;                        // these are values, as ProgramSpec numbers them
  absl::InlinedVector<uint32_t, 3> operands;
  absl::InlinedVector<uint32_t, 2> last_uses;  // to let go of after it

  bool runs_inline() const { return chain != nullptr ? chain->runs_inline() : op->runs_inline(); }
};

// `ops` with every chain of elementwise ops as one step, where the device has a kernel for it and
// gains by it, and every linear as one with the activation that follows it. Only what one op alone
// reads, and what is no output of the program, is left out thereby. A chain takes the place of its
// first op: what it reads is there already, so that no value lives longer for it.
std::vector<ProgramStep> FuseSteps(std::vector<ProgramStep> ops, uint32_t num_inputs,
                                   absl::Span<const uint32_t> outputs, ChainKernels* chains);

}  // namespace tensord::server
