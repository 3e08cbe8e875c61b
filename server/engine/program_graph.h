// Runs a program as one graph of its device, if launching its kernels takes longer than running
// them.
//
// A graph works on the addresses that it was captured with. But each run of a program has inputs of
// its own, and its outputs outlive the run. Therefore:
// - If an input has the same address as in the run before (weights, for example), the graph reads
// it
//   in place. When its address changes, the graph is captured again.
// - All other inputs are copied to memory of the graph before each launch.
// - Outputs are copied from the graph's memory to new memory after each launch.
//
// Alternatives that were rejected:
// - Capture each run and call cudaGraphExecUpdate: costs about as much as launching the kernels.
// - Give kernels new arguments: needs the positions of addresses among the arguments, which the
//   kernels of cuBLASLt don't tell.
// - Make the copies nodes of the graph and set their addresses for each run: costs one call for
// each,
//   as copies outside do, and depends on the version of CUDA.
//
// Gain: NVIDIA and others measure 2.5 to 4 us for a small kernel in a row of launches, and about 1
// us in a graph (CUDA.jl: 80 broadcasts in 260 and 70 us, of which the CPU had 3.5). Cost: a launch
// for the graph, one for each copy, and the time of the copies, in which an H100 moves more than 1
// KiB a nanosecond.
//
// These run op by op:
// - programs that would not gain: short ones, and those with large inputs and outputs,
// - the first run of each program, which loads the kernels,
// - programs that can't be captured: always, and a line on standard error says so.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensord/common/tensor_spec.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/device/device.h"
#include "tensord/server/device/memory_account.h"
#include "tensord/server/device/spare_memory.h"
#include "tensord/server/engine/prepared_op.h"
#include "tensord/server/engine/program_fusion.h"

namespace tensord::server {

// Where the memory of a program's value comes from. An alias has the place of its operand.
enum class ValuePlace : uint8_t { kInput, kKept, kAllocated };

// One thread runs it at a time: the thread that has the device's executor. The graph's memory is
// charged to the account of the run that allocated it. It is spare memory: the graph frees it if an
// allocation would fail otherwise, or after the device was lost, and allocates it again some runs
// later.
class ProgramGraph final : public SpareMemory {
 public:
  // The program. The spans must outlive the graph.
  struct Body {
    DeviceSlot* slot;
    size_t num_inputs;
    absl::Span<const TensorSpec> specs;  // these two of every value
    absl::Span<const ValuePlace> places;
    absl::Span<const ProgramStep> steps;
    absl::Span<const uint32_t> outputs;
  };

  // Returns null if the device has no graphs, or the program is too short or too long for one.
  static std::unique_ptr<ProgramGraph> Make(const Body& body);
  ~ProgramGraph() override;

  // Returns the outputs; empty if the caller must run the program op by op this time. `values` are
  // the program's buffers by value; it uses those of kept values. Returns an error only if the
  // device is lost.
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

  // Whether the graph saves more time than its copies take, as far as is known of the inputs.
  bool IsWorthIt() const;
  // Whether the inputs are at the addresses that `captured` reads. Records those that are not.
  bool Fits(const Captured& captured, absl::Span<const TensorRef> inputs);
  // Whether this run should be captured. Records the addresses of the inputs.
  bool IsDue(absl::Span<const TensorRef> inputs);

  // Returns null if the capture fails, and records why.
  std::unique_ptr<Captured> Capture(MemoryAccount& account, absl::Span<const TensorRef> inputs,
                                    absl::Span<Buffer* const> kept);
  absl::Status PlaceInputs(MemoryAccount& account, absl::Span<const TensorRef> inputs,
                           Captured* captured);
  absl::Status PlaceResults(MemoryAccount& account, absl::Span<Buffer* const> kept,
                            Captured* captured);
  absl::Status LaunchSteps(MemoryAccount& account, Captured* captured) const;
  // Adds `bytes` to the memory of the graph. Returns OUT_OF_RANGE if that is more than a graph may
  // have.
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

  // Only the thread that has the executor uses these.
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
