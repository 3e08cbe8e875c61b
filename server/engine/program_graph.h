// A program as one graph of its device's, where launching takes longer than running.
//
// A graph works on the addresses that it was captured with, but each run of a program brings
// inputs of its own, and its outputs live on. Of the ways to bring the two together this one was
// taken:
//   an input that lies where it lay at the run before (weights) is read where it is, and the graph
//     is used for as long as that stays so;
//   any other input is first copied to memory of the graph's, and is from then on;
//   outputs are copied from the graph's memory to new memory.
// Copies are launches of their own before and after the graph's. What was decided against:
// capturing anew at each run, with cudaGraphExecUpdate, costs about what launching does; giving
// kernels new arguments needs to know where they keep addresses, which cuBLASLt's don't tell; nodes
// for the copies within the graph, whose addresses are set for each run, cost a call each just as
// copies outside do, and depend on which CUDA it is.
//
// What that gains: NVIDIA and others measure 2.5 to 4 us for a small kernel in a row of launches,
// and about 1 us in a graph (CUDA.jl: 80 broadcasts in 260 and 70 us, of which the CPU had 3.5).
// What it costs: a launch for the graph, one for each copy, and the time of the copy, in which an
// H100 moves more than 1 KiB a nanosecond. Programs that wouldn't gain run op by op: short ones,
// and those whose inputs and outputs are large, where the GPU and not launching is what takes time.
//
// So do the first run of a program, in which the kernels are loaded, and programs whose capture is
// refused: these for good, and standard error says so.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensord/common/mutex.h"
#include "tensord/common/tensor_spec.h"
#include "tensord/server/device/device.h"
#include "tensord/server/device/memory_account.h"
#include "tensord/server/device/spare_memory.h"
#include "tensord/server/engine/prepared_op.h"
#include "tensord/server/engine/program_fusion.h"

namespace tensord::server {

// Where the memory of a program's value comes from; an alias has its operand's.
enum class ValuePlace : uint8_t { kInput, kKept, kAllocated };

// Runs are one at a time, by whoever has the device's executor. The graph's memory is charged to
// the account of the run that took it, and is spare: it goes when somebody needs the room, or when
// the device comes back from a fault, and is taken again some runs later.
class ProgramGraph final : public SpareMemory {
 public:
  // What is run; it outlives this.
  struct Body {
    DeviceSlot* slot;
    size_t num_inputs;
    absl::Span<const TensorSpec> specs;  // these two of every value
    absl::Span<const ValuePlace> places;
    absl::Span<const ProgramStep> steps;
    absl::Span<const uint32_t> outputs;
  };

  // Null where the device has no graphs, or the program is too short or too long for one.
  static std::unique_ptr<ProgramGraph> Make(const Body& body);
  ~ProgramGraph() override;

  // The outputs; nothing at all where this run is to go op by op. Of `values` those are used that
  // are kept. An error only where the device is lost.
  absl::StatusOr<BufferRefs> Run(MemoryAccount& account, absl::Span<const TensorRef> inputs,
                                 absl::Span<Buffer* const> values);

  bool GiveUp(const MemoryAccount* account) override;

 private:
  // A graph with its memory.
  struct Captured {
    std::vector<BufferRef> memory;
    std::vector<Buffer*> values;  // of every value; null for inputs that no kernel reads
    absl::flat_hash_map<uint32_t, BufferRef> constants;  // by value
    std::vector<uint32_t> copied_inputs;
    std::vector<uint32_t> fixed_inputs;
    std::vector<const void*> fixed_at;  // their addresses
    int64_t bytes = 0;                  // of values
    bool launched = false;
    std::unique_ptr<KernelGraph> kernels;  // goes first
  };

  explicit ProgramGraph(const Body& body);

  // Whether it is worth its copies, by what is known of the inputs.
  bool IsWorthIt() const;
  // Whether inputs lie where `captured` reads them; takes note of those that don't.
  bool Fits(const Captured& captured, absl::Span<const TensorRef> inputs);
  // Whether it is time to capture: takes note of where inputs lie.
  bool IsDue(absl::Span<const TensorRef> inputs);

  // Null where it can't be had, having taken note of why.
  std::unique_ptr<Captured> Capture(MemoryAccount& account, absl::Span<const TensorRef> inputs,
                                    absl::Span<Buffer* const> kept);
  absl::Status PlaceInputs(MemoryAccount& account, absl::Span<const TensorRef> inputs,
                           Captured* captured);
  absl::Status PlaceResults(MemoryAccount& account, absl::Span<Buffer* const> kept,
                            Captured* captured);
  absl::Status LaunchSteps(MemoryAccount& account, Captured* captured) const;
  // Refuses what is too much for a graph.
  static absl::Status Count(int64_t bytes, Captured* captured);
  absl::StatusOr<Buffer*> TakeMemory(MemoryAccount& account, int64_t bytes,
                                     Captured* captured) const;
  void TakeNoteOf(const absl::Status& failure);

  absl::StatusOr<BufferRefs> Replay(MemoryAccount& account, Captured* captured,
                                    absl::Span<const TensorRef> inputs) const;
  absl::StatusOr<BufferRefs> TakeOutputs(MemoryAccount& account, const Captured& captured,
                                         absl::Span<const TensorRef> inputs) const;

  const Body body_;
  Device& device_;
  std::vector<uint32_t> roots_;  // of every value: the one whose memory it has
  std::vector<bool> constant_;   // of every value
  std::vector<uint32_t> read_inputs_;
  int64_t num_launches_ = 0;

  // Whoever has the executor's.
  int64_t last_life_ = -1;  // of the device, at the last run that went op by op
  bool never_ = false;
  int runs_to_wait_ = 0;
  int moves_ = 0;                          // graphs that were dropped because inputs had moved
  std::vector<bool> moving_;               // of every input: seen at different addresses
  std::vector<const void*> last_address_;  // of every input

  Mutex mu_;
  std::unique_ptr<Captured> idle_ ABSL_GUARDED_BY(mu_);  // null during a run
  bool given_up_ ABSL_GUARDED_BY(mu_) = false;           // since the last run
};

}  // namespace tensord::server
