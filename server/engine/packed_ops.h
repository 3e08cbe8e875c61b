// Ops in the packed form of a session's stream: many of them, each a few words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensord/common/attributes.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/engine/prepared_op.h"
#include "tensord/server/session/session.h"

namespace tensord::server {

// What a stream has defined, and the steps that name it. What is brief and ready runs at once, on
// the calling thread, many steps under one lock; everything else goes the way of Engine::Run. Not
// thread-safe; one per stream.
class PackedOps {
 public:
  static constexpr uint32_t kMaxDefinitions = 1 << 16;
  static constexpr uint32_t kMaxInputs = 1024;
  static constexpr uint32_t kMaxPrograms = 4096;
  // Of all that a stream keeps: names and attributes of definitions; ops, inputs and
  // outputs of programs, a word each.
  static constexpr size_t kMaxDefinitionBytes = 32 << 20;
  static constexpr size_t kMaxProgramWords = 1 << 20;

  PackedOps(Engine* engine, SessionRef session) : engine_(engine), session_(std::move(session)) {}

  // Gives an op and its attributes a number, for as long as this lives. INVALID_ARGUMENT where it
  // isn't the one after the last; RESOURCE_EXHAUSTED past kMaxDefinitions; whether there is such an
  // op shows where it is used.
  absl::Status Define(uint32_t number, std::string op, Attributes attrs, std::string device,
                      uint32_t num_inputs);

  // Keeps a program under a number, likewise: INVALID_ARGUMENT for another than the next. `ops` as
  // in v1::Program. What is wrong with the program itself shows where it is run.
  absl::Status AddProgram(uint32_t number, absl::string_view device, std::vector<TensorSpec> inputs,
                          absl::Span<const uint32_t> ops, std::vector<uint32_t> outputs);

  // Forgets it, where there is one.
  void DropProgram(uint32_t number);

  // NOT_FOUND where there is no such program; the error of making it ready.
  absl::StatusOr<TensorRefs> RunProgram(uint32_t number, absl::Span<const Handle> inputs,
                                        absl::Span<const Handle> outputs);

  // What became of an op that didn't run at once: a promise, or the error with which it was
  // refused. Its error ends Take.
  using ResultCallback = absl::FunctionRef<absl::Status(uint64_t command, Handle output,
                                                        const absl::StatusOr<TensorRef>& tensor)>;

  // Takes in the steps of a batch (v1::Batch says what the words are), of which the first is
  // command number *command + 1, and counts them there. INVALID_ARGUMENT where the words make no
  // sense: what came before has been taken in.
  absl::Status Take(absl::Span<const uint64_t> words, uint64_t* command, ResultCallback on_result);

 private:
  struct Definition {
    std::string op;
    Attributes attrs;
    std::string device;
    uint32_t num_inputs = 0;
    std::vector<PreparedOpRef> recent;  // the last few that fitted
    size_t next = 0;
  };
  struct Kept {
    absl::StatusOr<std::shared_ptr<Program>> program;
    size_t words;
  };
  // One step; `definition` is null for a drop.
  struct Step {
    Definition* definition = nullptr;
    Handle handle = 0;
    absl::Span<const uint64_t> inputs;  // distances down from `handle`
  };

  absl::StatusOr<ProgramSpec> ToSpec(std::vector<TensorSpec> inputs, absl::Span<const uint32_t> ops,
                                     std::vector<uint32_t> outputs) const;
  absl::Status Parse(absl::Span<const uint64_t>* words, Step* step);
  // Runs steps from the front of `words` while they are brief and ready; false with the step that
  // isn't.
  absl::StatusOr<bool> RunSlice(absl::Span<const uint64_t>* words, uint64_t* command, Step* stuck);
  bool TryRun(const Step& step, Session::Table& table);
  PreparedOp* FindPreparedOp(Definition& definition, absl::Span<const TensorRef> inputs);
  absl::StatusOr<TensorRef> RunViaEngine(const Step& step);

  Engine* const engine_;
  const SessionRef session_;
  std::vector<Definition> definitions_;  // number i is at i - 1
  absl::flat_hash_map<uint32_t, Kept> programs_;
  uint32_t last_program_ = 0;
  size_t definition_bytes_ = 0;
  size_t program_words_ = 0;
  Handle last_handle_ = 0;             // of the batch
  DeviceSlot* likely_slot_ = nullptr;  // where the last op ran
  std::vector<TensorRef> dropped_;
};

}  // namespace tensord::server
