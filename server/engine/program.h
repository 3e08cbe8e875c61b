// A sequence of ops with fixed shapes on one device, made ready once and run as one.
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
#include "tensord/server/engine/program_fusion.h"
#include "tensord/server/engine/program_graph.h"

namespace tensord::server {

// Values are numbered: the inputs from 0 on, then each step's result.
struct ProgramSpec {
  static constexpr size_t kMaxSteps = 1 << 16;

  struct Step {
    absl::string_view op;
    const Attributes* attrs;
    absl::InlinedVector<uint32_t, 3> operands;
  };
  std::vector<TensorSpec> inputs;
  std::vector<Step> steps;
  std::vector<uint32_t> outputs;
};

// Small intermediate values live in memory that the program keeps and uses again, which counts as
// the device's used memory while the program lives; large ones are allocated by each run, and given
// back at their last use. What lies within a chain that runs as one (program_fusion.h) has none.
// Where launching takes longer than running, what runs is a graph (program_graph.h).
class Program final : public Executable {
 public:
  // INVALID_ARGUMENT, naming the step, where one reads a value that isn't there yet, or inference
  // refuses it; RESOURCE_EXHAUSTED where there is no memory for what the program keeps. `chains` is
  // null where ops aren't to be fused; `graphs` whether the program may run as a graph.
  // What it keeps is charged to `account`.
  static absl::StatusOr<std::shared_ptr<Program>> Make(const ProgramSpec& spec, DeviceSlot* slot,
                                                       MemoryAccount& account,
                                                       PreparedOpCache* prepared_ops,
                                                       ChainKernels* chains, bool graphs);

  absl::string_view name() const override { return "program"; }
  DeviceSlot* slot() const override { return slot_; }
  bool runs_inline() const override { return runs_inline_; }
  absl::StatusOr<BufferRefs> Run(MemoryAccount& account,
                                 absl::Span<const TensorRef> inputs) override;

  const std::vector<TensorSpec>& inputs() const { return inputs_; }
  size_t num_outputs() const { return outputs_.size(); }
  const TensorSpec& output(size_t i) const { return specs_[outputs_[i]]; }

 private:
  absl::Status AddStep(const ProgramSpec::Step& step, PreparedOpCache* prepared_ops);
  absl::Status CheckOutputs(const std::vector<uint32_t>& outputs);
  // Finds out how long each value lives, and which share memory.
  absl::Status PlanMemory(MemoryAccount& account);
  absl::StatusOr<Buffer*> KeepMemory(MemoryAccount& account, int64_t bytes);
  // Takes the memory anew where the device has come back without it.
  absl::Status RenewMemory(MemoryAccount& account);
  absl::Status RunStep(MemoryAccount& account, const ProgramStep& step,
                       absl::Span<const TensorRef> inputs);
  // Whether the ops, one by one, touch little enough.
  bool IsSmall() const;

  DeviceSlot* slot_ = nullptr;
  std::vector<TensorSpec> inputs_;
  std::vector<TensorSpec> specs_;  // of every value
  std::vector<ProgramStep> steps_;
  std::vector<uint32_t> outputs_;
  std::vector<ValuePlace> places_;  // of every value
  std::vector<BufferRef> kept_;
  std::vector<uint32_t> holding_;  // results that a run allocates, and other names of values
  bool runs_inline_ = false;

  // Of the run under way: every value's buffer, and what holds those that were allocated.
  std::vector<Buffer*> values_;
  std::vector<BufferRef> held_;

  std::unique_ptr<ProgramGraph> graph_;  // of what is above; null where it always runs op by op
};

}  // namespace tensord::server
