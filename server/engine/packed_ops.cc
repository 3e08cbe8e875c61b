#include "tensord/server/engine/packed_ops.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/engine/readiness.h"

namespace tensord::server {
namespace {

// How many steps run under one lock. The lock then costs little for each step, and other threads
// wait only briefly for it.
constexpr int kMaxStepsPerLock = 64;
// The deadline is checked once in this many rounds. A round runs up to kMaxStepsPerLock steps
// inline, and then passes at most one step to the engine.
constexpr int kRoundsPerDeadlineCheck = 4;
// How many prepared ops a definition keeps: one for each combination of input specs.
constexpr size_t kMaxRecentOps = 4;

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("a batch of packed ops ", what));
}

}  // namespace

absl::Status PackedOps::Define(uint32_t number, std::string op, Attributes attrs,
                               std::string device, uint32_t num_inputs) {
  if (number != definitions_.size() + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("definition ", number, ": the next number is ", definitions_.size() + 1));
  }
  if (number > kMaxDefinitions) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "more than ", kMaxDefinitions, " definitions on one stream; send ops unpacked"));
  }
  if (num_inputs > kMaxInputs) {
    return absl::InvalidArgumentError(absl::StrCat("definition ", number, " has ", num_inputs,
                                                   " inputs, more than ", kMaxInputs));
  }
  const size_t bytes = op.size() + device.size() + attrs.AllocatedBytes();
  definition_bytes_ += bytes;
  if (definition_bytes_ > kMaxDefinitionBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the definitions of one stream have more than ", kMaxDefinitionBytes,
                     " bytes; send large attributes unpacked"));
  }
  TENSORD_RETURN_IF_ERROR(charge_.Add(kDefinitionHostBytes + static_cast<int64_t>(bytes)));
  definitions_.push_back({std::move(op), std::move(attrs), std::move(device), num_inputs, {}, 0});
  return absl::OkStatus();
}

absl::StatusOr<ProgramSpec> PackedOps::ToSpec(std::vector<TensorSpec> inputs,
                                              absl::Span<const uint32_t> ops,
                                              std::vector<uint32_t> outputs) const {
  ProgramSpec spec;
  spec.inputs = std::move(inputs);
  spec.outputs = std::move(outputs);
  while (!ops.empty()) {
    if (ops[0] == 0 || ops[0] > definitions_.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a program names definition ", ops[0], ", but ", definitions_.size(), " are defined"));
    }
    const Definition& definition = definitions_[ops[0] - 1];
    if (ops.size() < 1 + definition.num_inputs) {
      return absl::InvalidArgumentError("a program ends in the middle of an op");
    }
    const absl::Span<const uint32_t> operands = ops.subspan(1, definition.num_inputs);
    spec.steps.push_back({definition.op, &definition.attrs, {operands.begin(), operands.end()}});
    ops.remove_prefix(1 + definition.num_inputs);
  }
  return spec;
}

absl::Status PackedOps::AddProgram(uint32_t number, absl::string_view device,
                                   std::vector<TensorSpec> inputs, absl::Span<const uint32_t> ops,
                                   std::vector<uint32_t> outputs) {
  if (number != last_program_ + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("program ", number, ": the next number is ", last_program_ + 1));
  }
  if (programs_.size() >= kMaxPrograms) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kMaxPrograms, " programs at once on one stream; drop some"));
  }
  ++last_program_;
  KeptProgram kept;
  const size_t words = ops.size() + inputs.size() + outputs.size();
  if (program_words_ + words <= kMaxProgramWords) {
    program_words_ += kept.words = words;
    kept.program = MakeProgram(device, std::move(inputs), ops, std::move(outputs));
  } else {
    kept.program = absl::ResourceExhaustedError(absl::StrCat(
        "the programs of one stream take more than ", kMaxProgramWords, " words; drop some"));
  }
  if (!kept.program.ok()) {
    kept.charge = HostCharge(session_->host_account());
    const absl::Status charged = kept.charge.Add(HostBytesOf(kept.program.status()));
    if (!charged.ok()) kept.program = charged;
  }
  programs_.emplace(number, std::move(kept));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Program>> PackedOps::MakeProgram(absl::string_view device,
                                                                std::vector<TensorSpec> inputs,
                                                                absl::Span<const uint32_t> ops,
                                                                std::vector<uint32_t> outputs) {
  TENSORD_ASSIGN_OR_RETURN(const ProgramSpec spec,
                           ToSpec(std::move(inputs), ops, std::move(outputs)));
  return engine_->Prepare(*session_, spec, device);
}

absl::StatusOr<TensorRefs> PackedOps::RunProgram(uint32_t number, absl::Span<const Handle> inputs,
                                                 absl::Span<const Handle> outputs) {
  const auto found = programs_.find(number);
  if (found == programs_.end()) {
    return absl::NotFoundError(absl::StrCat("this stream has no program ", number));
  }
  TENSORD_RETURN_IF_ERROR(found->second.program.status());
  return engine_->Run(session_, *found->second.program, inputs, outputs);
}

void PackedOps::DropProgram(uint32_t number) {
  const auto found = programs_.find(number);
  if (found == programs_.end()) return;
  program_words_ -= found->second.words;
  programs_.erase(found);
}

void PackedOps::DropPrograms() {
  programs_.clear();
  program_words_ = 0;
}

absl::Status PackedOps::RunBatch(absl::Span<const uint64_t>* words, uint64_t* command,
                                 ResultCallback on_result,
                                 std::chrono::steady_clock::time_point deadline) {
  int64_t released_at = 0;
  for (int round = 1; !words->empty(); ++round) {
    if (round % kRoundsPerDeadlineCheck == 0 && std::chrono::steady_clock::now() >= deadline) break;
    Step not_inline;
    Executor::InlineLock lock = AcquireInlineLock(released_at);
    absl::StatusOr<bool> all_ran = RunSteps(lock, words, command, &not_inline);
    released_at = lock.Release();
    AbandonUploads(dropped_);
    dropped_.clear();
    TENSORD_RETURN_IF_ERROR(all_ran.status());
    if (*all_ran) continue;
    released_at = 0;
    const absl::StatusOr<TensorRef> promised = RunViaEngine(not_inline);
    ++*command;
    if (promised.ok()) likely_slot_ = (*promised)->slot();
    TENSORD_RETURN_IF_ERROR(on_result(*command, not_inline.handle, promised));
  }
  return absl::OkStatus();
}

absl::Status PackedOps::Parse(absl::Span<const uint64_t>* words, Step* step) {
  if (words->size() < 2) return Malformed("ends in the middle of a step");
  const uint64_t number = (*words)[0];
  if (number == 0) {
    step->definition = nullptr;
    step->handle = last_handle_ - (*words)[1];
    words->remove_prefix(2);
    return absl::OkStatus();
  }
  if (number > definitions_.size()) {
    return Malformed(
        absl::StrCat("names definition ", number, ", but ", definitions_.size(), " are defined"));
  }
  Definition& definition = definitions_[number - 1];
  if (words->size() < 2 + definition.num_inputs) return Malformed("ends in the middle of a step");
  step->definition = &definition;
  step->handle = last_handle_ += (*words)[1];
  step->inputs = words->subspan(2, definition.num_inputs);
  words->remove_prefix(2 + definition.num_inputs);
  return absl::OkStatus();
}

Executor::InlineLock PackedOps::AcquireInlineLock(int64_t since) const {
  if (likely_slot_ == nullptr) return {};
  return Executor::InlineLock(likely_slot_->executor.get(), session_->lane(*likely_slot_).get(),
                              since);
}

absl::StatusOr<bool> PackedOps::RunSteps(const Executor::InlineLock& lock,
                                         absl::Span<const uint64_t>* words, uint64_t* command,
                                         Step* not_inline) {
  const RefusalCountingPause pause;  // RunViaEngine() tries again
  Session::Table table(session_.get());
  for (int i = 0; i < kMaxStepsPerLock && !words->empty(); ++i) {
    Step step;
    TENSORD_RETURN_IF_ERROR(Parse(words, &step));
    if (step.definition == nullptr) {
      TensorRef tensor = table.TakeOut(step.handle);
      if (tensor != nullptr) dropped_.push_back(std::move(tensor));
      ++*command;
    } else if (lock.held() && TryRun(step, table)) {
      ++*command;
      if (lock.contended()) return true;
    } else {
      *not_inline = step;
      return false;
    }
  }
  return true;
}

bool PackedOps::TryRun(const Step& step, Session::Table& table) {
  TensorRefs inputs;
  for (uint64_t distance : step.inputs) {
    const TensorRef* input = table.Find(step.handle - distance);
    if (input == nullptr || !IsReady(**input)) return false;
    inputs.push_back(*input);
  }
  PreparedOp* op = FindPreparedOp(*step.definition, inputs);
  if (op == nullptr || op->slot() != likely_slot_ || !op->runs_inline()) return false;
  absl::StatusOr<BufferRef> result = op->RunSingle(session_->account(*likely_slot_), inputs);
  if (!result.ok()) return false;
  return table.Insert(Tensor::Make(step.handle, op->output(), likely_slot_, *std::move(result)));
}

PreparedOp* PackedOps::FindPreparedOp(Definition& definition, absl::Span<const TensorRef> inputs) {
  for (const PreparedOpRef& op : definition.recent) {
    if (FirstMismatch(op->inputs(), op->slot(), inputs) == inputs.size()) {
      return op.get();
    }
  }
  absl::StatusOr<PreparedOpRef> op = engine_->FindPreparedOp(
      *session_, {definition.op, {}, 0, definition.attrs, definition.device}, inputs);
  if (!op.ok()) return nullptr;
  if (definition.recent.size() < kMaxRecentOps) definition.recent.emplace_back();
  PreparedOpRef& place = definition.recent[definition.next++ % kMaxRecentOps];
  place = *std::move(op);
  return place.get();
}

absl::StatusOr<TensorRef> PackedOps::RunViaEngine(const Step& step) {
  absl::InlinedVector<Handle, 3> inputs;
  for (uint64_t distance : step.inputs) inputs.push_back(step.handle - distance);
  const Definition& definition = *step.definition;
  return engine_->Run(session_,
                      {definition.op, inputs, step.handle, definition.attrs, definition.device});
}

}  // namespace tensord::server
