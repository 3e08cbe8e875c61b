// Runs a program as one graph of its device, if launching its kernels takes longer than running
// them.
//
// A graph uses the addresses that it was captured with. But each run of a program has its own
// inputs, and its outputs outlive the run. Therefore:
// - If an input has the same address as in the run before (weights, for example), the graph reads
//   it in place. When its address changes, the graph is captured again.
// - All other inputs are copied to memory of the graph before each launch.
// - Outputs are copied from the graph's memory to new memory after each launch.
//
// Alternatives that were rejected:
// - Capture each run and call cudaGraphExecUpdate: costs about as much as launching the kernels.
// - Give kernels new arguments: needs the positions of addresses among the arguments. They are
//   unknown for the kernels of cuBLASLt.
// - Make the copies nodes of the graph and set their addresses for each run: costs one call for
//   each copy, as copies outside the graph do, and depends on the version of CUDA.
//
// Gain: published measurements show 2.5 to 4 us for each small kernel that is launched, and about
// 1 us in a graph. CUDA.jl: 80 broadcasts took 260 us as launches and 70 us as a graph, 3.5 us of
// that on the CPU.
// Cost: one launch for the graph, one for each copy, and the copies. An H100 copies more than 1 KiB
// a nanosecond.
//
// A program runs op by op:
// - always, if it would not gain: it is short, or has large inputs and outputs,
// - in its first run, which loads the kernels,
// - always, if it can't be captured. A line on standard error reports that.
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

// Where the memory of a program's value comes from. An alias has no memory of its own, and is
// kInput.
enum class ValuePlace : uint8_t { kInput, kKept, kAllocated };

// One thread runs it at a time: the executor's, or the thread that holds the executor's InlineLock.
// The graph's memory is charged to the account of the run that allocated it. The memory is spare:
// the graph frees it if an allocation would fail otherwise, and allocates it again some runs later.
// If the device was lost, the graph is captured again.
class ProgramGraph final : public SpareMemory {
 public:
  // The program that the graph runs. The spans must outlive the graph.
  struct Body {
    DeviceSlot* slot;
    size_t num_inputs;
    absl::Span<const TensorSpec> specs;   // by value
    absl::Span<const ValuePlace> places;  // by value
    absl::Span<const ProgramStep> steps;
    absl::Span<const uint32_t> outputs;
  };

  // Returns null if the device has no graphs, or the program is too short or too long for one.
  static std::unique_ptr<ProgramGraph> Make(const Body& body);
  ~ProgramGraph() override;

  // Returns the outputs. If the caller must run the program op by op this time, returns an empty
  // list. `values` are the program's buffers, by value; only those of kept values are used. If ops
  // report values, adds a check to `checks`, as Executable::Run() does. Returns an error only if
  // the device is lost.
  absl::StatusOr<BufferRefs> Run(MemoryAccount& account, absl::Span<const TensorRef> inputs,
                                 absl::Span<Buffer* const> values, ValueCheckRefs* checks);

  bool FreeUnused(const MemoryAccount* account) override;

 private:
  // A graph with its memory.
  struct Captured {
    std::vector<BufferRef> memory;
    std::vector<BufferRef> views;  // of buffers that aren't in `memory`, too
    std::vector<Buffer*> values;   // by value; null for inputs that no kernel reads
    absl::flat_hash_map<uint32_t, BufferRef> constants;  // by value
    Buffer* check_cells =
        nullptr;  // a GraphCheckCell for each of reporting_; null if there is none
    std::vector<uint32_t> copied_inputs;
    std::vector<uint32_t> fixed_inputs;
    std::vector<const void*> fixed_at;  // the addresses of `fixed_inputs`
    int64_t bytes = 0;                  // of `memory` and `constants`
    bool launched = false;
    std::unique_ptr<KernelGraph> kernels;  // destroyed before the memory
  };

  explicit ProgramGraph(const Body& body);

  // Returns whether the graph saves more time than it costs, as far as the inputs' addresses are
  // known.
  bool IsProfitable() const;
  // Returns whether the inputs are at the addresses that `captured` reads. Records the inputs that
  // are not.
  bool Fits(const Captured& captured, absl::Span<const TensorRef> inputs);
  // Returns whether this run should be captured. Records the addresses of the inputs.
  bool IsDue(absl::Span<const TensorRef> inputs);

  // Returns null if the capture fails, and records why.
  std::unique_ptr<Captured> Capture(MemoryAccount& account, absl::Span<const TensorRef> inputs,
                                    absl::Span<Buffer* const> kept);
  absl::Status PlaceInputs(MemoryAccount& account, absl::Span<const TensorRef> inputs,
                           Captured* captured);
  absl::Status PlaceResults(MemoryAccount& account, absl::Span<Buffer* const> kept,
                            Captured* captured);
  // Sets the buffer of a step that is an alias.
  static void PlaceAlias(const ProgramStep& step, Captured* captured);
  absl::Status LaunchSteps(MemoryAccount& account, Captured* captured) const;
  // Adds `bytes` to the memory of the graph. If the sum exceeds kMaxBytes, returns OUT_OF_RANGE.
  static absl::Status Count(int64_t bytes, Captured* captured);
  absl::StatusOr<Buffer*> AllocateMemory(MemoryAccount& account, int64_t bytes,
                                         Captured* captured) const;
  // Decides by the error whether and when to try again.
  void RecordFailure(const absl::Status& failure);

  // Allocates the cells of the ops that report values, and makes them zero.
  absl::Status PlaceChecks(MemoryAccount& account, Captured* captured) const;
  absl::StatusOr<BufferRefs> Replay(MemoryAccount& account, Captured* captured,
                                    absl::Span<const TensorRef> inputs,
                                    ValueCheckRefs* checks) const;
  // Launches the kernels, and what their ops report is moved to a check that is added to `checks`.
  absl::Status LaunchKernels(Captured* captured, absl::Span<const Buffer* const> uploaded,
                             ValueCheckRefs* checks) const;
  // New memory for the outputs, by the value that owns it. Outputs that are inputs or constants, or
  // views of them, need none.
  using RootBuffers = absl::flat_hash_map<uint32_t, BufferRef>;
  absl::StatusOr<RootBuffers> AllocateRoots(MemoryAccount& account) const;

  const Body body_;
  Device& device_;
  std::vector<uint32_t> roots_;   // by value: the value that owns its memory
  std::vector<int64_t> offsets_;  // by value: where its bytes begin in its root's
  std::vector<bool> constant_;    // by value
  std::vector<uint32_t> read_inputs_;
  // The ops whose kernels report bad values, in the order of the steps. Checks share it.
  const std::shared_ptr<std::vector<PreparedOpRef>> reporting_ =
      std::make_shared<std::vector<PreparedOpRef>>();
  int64_t num_launches_ = 0;

  // Only the thread that runs the program uses these.
  int64_t last_restarts_ = -1;             // of the device, at the last call of IsDue()
  bool never_ = false;                     // the program always runs op by op
  int runs_to_wait_ = 0;                   // before the next capture
  int moves_ = 0;                          // graphs that were dropped because inputs had moved
  std::vector<bool> moving_;               // by input: seen at different addresses
  std::vector<const void*> last_address_;  // by input

  Mutex mu_;
  std::unique_ptr<Captured> idle_ ABSL_GUARDED_BY(mu_);  // null during a run
  bool freed_ ABSL_GUARDED_BY(mu_) = false;              // FreeUnused() freed it since the last run
};

}  // namespace tensord::server
