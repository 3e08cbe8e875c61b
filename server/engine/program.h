// A sequence of ops with fixed shapes on one device, prepared once and run as one op.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensord/common/attributes.h"
#include "tensord/common/tensor_spec.h"
#include "tensord/server/engine/fusion.h"
#include "tensord/server/engine/prepared_op.h"
#include "tensord/server/engine/prepared_op_cache.h"
#include "tensord/server/engine/program_fusion.h"
#include "tensord/server/engine/program_graph.h"

namespace tensord::server {

// Values are numbered from 0: first the inputs, then the results of each step.
struct ProgramSpec {
  static constexpr size_t kMaxSteps = 1 << 16;

  struct Step {
    absl::string_view op;
    const Attributes* attrs;
    absl::InlinedVector<uint32_t, 3> operands;
    uint32_t num_results = 1;
  };
  std::vector<TensorSpec> inputs;
  std::vector<Step> steps;
  std::vector<uint32_t> outputs;
};

// The memory of intermediate values:
// - The program keeps memory for small values, and each run uses it again. It counts as used memory
//   of the device while the program exists.
// - Each run allocates large values, and frees them at their last use.
// - Values within a chain that runs as one kernel (program_fusion.h) have no memory.
// If launching takes longer than running, the program runs as a graph (program_graph.h).
class Program final : public Executable {
 public:
  // If a step reads a value that does not exist yet, or inference refuses the step, returns an
  // error that names the step. If a value that a step reads or computes exceeds the device's limit,
  // or there is no memory for the program to keep, returns RESOURCE_EXHAUSTED. Memory for values is
  // charged to `account`. The program itself is charged to `host`. `chains` is null if ops must not
  // be fused. `graphs` says whether the program may run as a graph.
  static absl::StatusOr<std::shared_ptr<Program>> Make(const ProgramSpec& spec, DeviceSlot* slot,
                                                       MemoryAccount& account,
                                                       const BudgetRef& host,
                                                       PreparedOpCache* prepared_ops,
                                                       ChainKernels* chains, bool graphs);

  absl::string_view name() const override { return "program"; }
  DeviceSlot* slot() const override { return slot_; }
  absl::StatusOr<BufferRefs> Run(MemoryAccount& account, absl::Span<const TensorRef> inputs,
                                 ValueCheckRefs* checks) override;

  const std::vector<TensorSpec>& inputs() const { return inputs_; }
  size_t num_outputs() const { return outputs_.size(); }
  const TensorSpec& output(size_t i) const { return specs_[outputs_[i]]; }

 private:
  absl::Status AddStep(const ProgramSpec::Step& step, PreparedOpCache* prepared_ops);
  // Returns the estimated host memory of a program, without its prepared ops.
  static int64_t HostBytesFor(const ProgramSpec& spec);
  absl::Status CheckOutputs(const std::vector<uint32_t>& outputs);
  // Determines how long each value lives, and which values share memory.
  absl::Status PlanMemory(MemoryAccount& account);
  // Gives a value memory that the program keeps: memory of `free`, or new memory.
  absl::Status AssignPersistent(MemoryAccount& account, uint32_t value,
                                std::vector<BufferRef>* free);
  // If the device was lost and serves again, allocates the kept memory again.
  absl::Status RenewMemory(MemoryAccount& account);
  absl::Status RunStep(MemoryAccount& account, const ProgramStep& step,
                       absl::Span<const TensorRef> inputs, ValueCheckRefs* checks);
  // Allocates the results of a step, if the program keeps no memory for them, and computes them.
  absl::Status LaunchStep(MemoryAccount& account, const ProgramStep& step, ValueCheckRefs* checks);
  void Hold(uint32_t value, BufferRef buffer);
  // Returns whether the program has few enough ops, which touch few enough bytes, to run inline.
  bool IsSmall() const;

  DeviceSlot* slot_ = nullptr;
  Charge charge_;
  std::vector<TensorSpec> inputs_;
  std::vector<TensorSpec> specs_;  // of every value
  std::vector<ProgramStep> steps_;
  std::vector<uint32_t> outputs_;
  std::vector<ValuePlace> places_;  // of every value
  std::vector<uint32_t> kept_;      // values whose memory the program keeps
  std::vector<uint32_t> holding_;   // results that a run allocates, and aliases

  // The buffers of the current run, by value. Those of inputs are only in values_. The buffers of
  // kept values are in both, also between runs.
  std::vector<Buffer*> values_;
  std::vector<BufferRef> held_;

  // Refers to the members above. Null if the program always runs op by op.
  std::unique_ptr<ProgramGraph> graph_;
};

}  // namespace tensord::server
