// Runs ops that a session's stream carries in packed form: a few words each.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensord/common/attributes.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/engine/prepared_op.h"
#include "tensord/server/session/session.h"

namespace tensord::server {

// A definition gives a number to an op, by which steps name the op (v1.Definition).
struct OpDefinition {
  // An attribute whose value is in each step, as words.
  struct WordAttr {
    std::string name;
    AttrType type;  // kInt, kFloat or kInts
  };
  // An input that is a scalar. Its value is in each step, as a word.
  struct Scalar {
    uint32_t position;
    DType dtype;
  };

  std::string op;
  Attributes attrs;  // those that all steps share
  std::string device;
  uint32_t num_inputs = 0;
  uint32_t num_outputs = 1;
  absl::InlinedVector<uint32_t, 2> donate;  // positions of inputs, as in OpRequest
  absl::InlinedVector<Scalar, 2> scalars;
  std::vector<WordAttr> word_attrs;

  // Returns an estimate of the memory that the members have allocated.
  size_t AllocatedBytes() const;
};

// Keeps the definitions of a session's stream, and runs the steps that name them. If a step can run
// inline (readiness.h), it runs on the calling thread, and many such steps run under one lock. All
// other steps go through Engine::RunOp(). This class isn't thread-safe. Each stream has one object.
class PackedOps {
 public:
  static constexpr auto kNoDeadline = std::chrono::steady_clock::time_point::max();
  static constexpr uint32_t kMaxDefinitions = 1 << 16;
  static constexpr uint32_t kMaxInputs = 1024;
  static constexpr uint32_t kMaxOutputs = 16;
  static constexpr size_t kMaxScalars = 8;     // of one definition
  static constexpr size_t kMaxWordAttrs = 16;  // of one definition
  static constexpr uint64_t kMaxInts = 64;     // of one attribute as words
  static constexpr uint32_t kMaxPrograms = 4096;
  // Limits the names and attributes of all definitions.
  static constexpr size_t kMaxDefinitionBytes = 32 << 20;
  // Limits all programs. A program has one word for each op, operand, input and output.
  static constexpr size_t kMaxProgramWords = 1 << 20;

  PackedOps(Engine* engine, SessionRef session) : engine_(engine), session_(std::move(session)) {}

  // Defines `number` as an op. If the number is defined already, replaces its definition. If
  // `number` is 0, or higher than the number of definitions plus 1, returns INVALID_ARGUMENT. So it
  // does if the definition exceeds a limit above, or names an input that it doesn't have. If
  // kMaxDefinitions, kMaxDefinitionBytes or a limit of host memory would be exceeded, returns
  // RESOURCE_EXHAUSTED. If the op is unknown, the steps that use it fail.
  absl::Status Define(uint32_t number, OpDefinition definition);

  // Keeps a program under `number`. `ops` has the form of v1::Program.ops. If `number` is not the
  // last one plus 1, returns INVALID_ARGUMENT. If kMaxPrograms would be exceeded, returns
  // RESOURCE_EXHAUSTED. RunProgram() returns the errors of the program itself. If kMaxProgramWords
  // or a limit of host memory would be exceeded, it returns RESOURCE_EXHAUSTED.
  absl::Status AddProgram(uint32_t number, absl::string_view device, std::vector<TensorSpec> inputs,
                          absl::Span<const uint32_t> ops, std::vector<uint32_t> outputs);

  // Drops the program of this number, if there is one.
  void DropProgram(uint32_t number);
  // Drops all programs.
  void DropPrograms();

  // Runs a program by Engine::Run(). If there is no such program, returns NOT_FOUND. If its
  // preparation failed, returns that error.
  absl::StatusOr<TensorRefs> RunProgram(uint32_t number, absl::Span<const Handle> inputs,
                                        absl::Span<const Handle> outputs,
                                        absl::Span<const uint32_t> donate = {});

  // RunBatch() calls a ResultCallback after each op that did not run inline. `command` is the
  // number of the step. `tensors` are the promised tensors, or the error with which the engine
  // refused the op. Their handles are `output` and the `num_outputs` - 1 next ones. If the callback
  // returns an error, RunBatch() ends with that error.
  using ResultCallback =
      absl::FunctionRef<absl::Status(uint64_t command, Handle output, uint32_t num_outputs,
                                     const absl::StatusOr<TensorRefs>& tensors)>;

  // Begins a batch. v1::Batch describes its words.
  void BeginBatch() { last_handle_ = 0; }
  // Runs steps from the front of `words`, the rest of the batch, and removes them, until no word is
  // left or `deadline` has passed. Each step increments *command, which is then the number of that
  // step. If the words are malformed, returns INVALID_ARGUMENT. The steps before the malformed one
  // have taken effect.
  absl::Status RunBatch(absl::Span<const uint64_t>* words, uint64_t* command,
                        ResultCallback on_result,
                        std::chrono::steady_clock::time_point deadline = kNoDeadline);

 private:
  // A definition keeps at most so many prepared ops, one for each combination of input specs and
  // words of attributes. If a step has more than kMaxKeptAttrWords words, its op isn't kept.
  static constexpr size_t kMaxRecentOps = 4;
  static constexpr size_t kMaxKeptAttrWords = 16;

  // A prepared op of a definition, for given input specs and words of attributes.
  struct RecentOp {
    PreparedOpRef op;
    absl::InlinedVector<uint64_t, 2> attr_words;
  };
  struct Definition : OpDefinition {
    std::vector<RecentOp> recent;  // the prepared ops of the last steps
    size_t next = 0;               // the entry of `recent` to replace
    Charge charge;
  };
  struct KeptProgram {
    absl::StatusOr<std::shared_ptr<Program>> program;
    size_t words = 0;  // counted against kMaxProgramWords
    Charge charge;     // for the error, if `program` is one
  };
  // The estimated memory of a definition consists of its entry in a vector, and of the references
  // to prepared ops. The vector doubles its memory when it grows.
  static constexpr int64_t kDefinitionHostBytes =
      2 * sizeof(Definition) + kMaxRecentOps * (sizeof(RecentOp) + 8 * kMaxKeptAttrWords);

  // A step is an op. If `definition` is null, it is a drop of `handle`.
  struct Step {
    Definition* definition = nullptr;
    Handle handle = 0;  // of the first output
    absl::Span<const uint64_t>
        inputs;  // `handle` minus the handle of each input; or a scalar's word
    absl::Span<const uint64_t> attr_words;
  };

  // Prepares the program. If it can't run, returns the error.
  absl::StatusOr<std::shared_ptr<Program>> MakeProgram(absl::string_view device,
                                                       std::vector<TensorSpec> inputs,
                                                       absl::Span<const uint32_t> ops,
                                                       std::vector<uint32_t> outputs);
  absl::StatusOr<ProgramSpec> ToSpec(std::vector<TensorSpec> inputs, absl::Span<const uint32_t> ops,
                                     std::vector<uint32_t> outputs) const;
  static absl::Status CheckDefinition(uint32_t number, const OpDefinition& definition);
  absl::Status Parse(absl::Span<const uint64_t>* words, Step* step);
  // Runs up to kMaxStepsPerLock steps from the front of `words`, and removes them. If a step can't
  // run inline, removes that step, too, sets `not_inline` to it, and returns false.
  absl::StatusOr<bool> RunSteps(const Executor::InlineLock& lock, absl::Span<const uint64_t>* words,
                                uint64_t* command, Step* not_inline);
  // Acquires the InlineLock of the device that the next op probably uses, and passes `since` to the
  // constructor of InlineLock.
  Executor::InlineLock AcquireInlineLock(int64_t since) const;
  // If the op of the step can run inline on likely_slot_ (readiness.h), runs it, inserts the result
  // and returns true. If the op can't run inline, or fails, changes nothing and returns false: the
  // engine then runs the op or reports the error. The thread must hold the InlineLock of
  // likely_slot_.
  bool TryRun(const Step& step, Session::Table& table);
  // Does the rest of TryRun() for an op with several outputs or donated inputs.
  bool TryRunGeneral(const Step& step, PreparedOp& op, absl::Span<const TensorRef> inputs,
                     Session::Table& table);
  // Sets the inputs that are scalars to tensors on likely_slot_. If the other inputs are elsewhere,
  // if the host can't access the device's memory, or if no memory is left, returns false.
  bool AddScalars(const Step& step, TensorRefs* inputs);
  // Returns all attributes of the step.
  static Attributes AttrsOf(const Step& step);
  // Returns the prepared op for these inputs, which need not be ready. The result is valid until
  // the next call. If the engine refuses the op, returns null: RunViaEngine() then returns the
  // error.
  PreparedOp* FindPreparedOp(const Step& step, absl::Span<const TensorRef> inputs);
  // Passes the op of the step to Engine::RunOp().
  absl::StatusOr<TensorRefs> RunViaEngine(const Step& step);

  Engine* const engine_;
  const SessionRef session_;
  std::vector<Definition> definitions_;  // number i is at i - 1
  absl::flat_hash_map<uint32_t, KeptProgram> programs_;
  uint32_t last_program_ = 0;
  size_t definition_bytes_ = 0;
  size_t program_words_ = 0;
  Handle last_handle_ = 0;             // of the batch
  DeviceSlot* likely_slot_ = nullptr;  // the device of the last op
  std::vector<TensorRef> dropped_;     // by the last RunSteps()
  PreparedOpRef unkept_op_;            // by the last FindPreparedOp(), if no definition keeps it
};

}  // namespace tensord::server
