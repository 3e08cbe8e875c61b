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

// The definitions of a session's stream, and the steps that name them. Steps that can run inline
// (readiness.h) run on the calling thread, many of them under one lock. All others go through
// Engine::Run(). Not thread-safe. There is one per stream.
class PackedOps {
 public:
  static constexpr uint32_t kMaxDefinitions = 1 << 16;
  static constexpr uint32_t kMaxInputs = 1024;
  static constexpr uint32_t kMaxPrograms = 4096;
  // Limits on what a stream keeps: the bytes of the names and attributes of definitions, and the
  // words of programs, one for each op, operand, input and output.
  static constexpr size_t kMaxDefinitionBytes = 32 << 20;
  static constexpr size_t kMaxProgramWords = 1 << 20;

  PackedOps(Engine* engine, SessionRef session) : engine_(engine), session_(std::move(session)) {}

  // Gives an op and its attributes a number, for the life of this object. If `number` is not the
  // one after the last, returns INVALID_ARGUMENT. Past kMaxDefinitions or kMaxDefinitionBytes,
  // returns RESOURCE_EXHAUSTED. An unknown op is an error when it is used.
  absl::Status Define(uint32_t number, std::string op, Attributes attrs, std::string device,
                      uint32_t num_inputs);

  // Keeps a program under a number. If `number` is not the one after the last, returns
  // INVALID_ARGUMENT; past kMaxPrograms, RESOURCE_EXHAUSTED. `ops` as in v1::Program. RunProgram()
  // returns the errors of the program itself.
  absl::Status AddProgram(uint32_t number, absl::string_view device, std::vector<TensorSpec> inputs,
                          absl::Span<const uint32_t> ops, std::vector<uint32_t> outputs);

  // Drops the program of this number, if there is one.
  void DropProgram(uint32_t number);

  // As Engine::Run(). If there is no such program, returns NOT_FOUND. If its preparation failed,
  // returns that error.
  absl::StatusOr<TensorRefs> RunProgram(uint32_t number, absl::Span<const Handle> inputs,
                                        absl::Span<const Handle> outputs);

  // Take() calls it for each op that did not run inline, with the promised tensor, or the error
  // with which the engine refused the op. If it returns an error, Take() ends with that error.
  using ResultCallback = absl::FunctionRef<absl::Status(uint64_t command, Handle output,
                                                        const absl::StatusOr<TensorRef>& tensor)>;

  // Runs the steps of a batch (v1::Batch says what the words are). The first step is command number
  // *command + 1; *command counts up with each. If the words are malformed, returns
  // INVALID_ARGUMENT; the steps before that have taken effect.
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
  // Runs steps from the front of `words` while they can run inline. Returns false, and the step in
  // `stuck`, if one can't.
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
