#include "tensord/server/engine/packed_ops.h"

#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/util/op_words.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/engine/readiness.h"

namespace tensord::server {
namespace {

// At most so many steps run under one lock. The lock then costs little for each step, and other
// threads wait only briefly for it.
constexpr int kMaxStepsPerLock = 64;

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("a batch of packed ops ", what));
}

// Returns how many of `words` are the values of `attrs`.
absl::StatusOr<size_t> CountAttrWords(absl::Span<const OpDefinition::WordAttr> attrs,
                                      absl::Span<const uint64_t> words) {
  size_t count = 0;
  for (const OpDefinition::WordAttr& attr : attrs) {
    if (count == words.size()) return Malformed("ends in the middle of a step");
    const uint64_t first = words[count++];
    if (attr.type != AttrType::kInts) continue;
    if (first > words.size() - count) return Malformed("ends in the middle of a list of ints");
    if (first > PackedOps::kMaxInts) {
      return Malformed(absl::StrCat("has a list of ", first, " ints; at most ", PackedOps::kMaxInts,
                                    ", send longer ones unpacked"));
    }
    count += first;
  }
  return count;
}

// Adds the attributes whose values are `words`, as CountAttrWords() counted them.
void AddWordAttrs(absl::Span<const OpDefinition::WordAttr> attrs, absl::Span<const uint64_t> words,
                  Attributes* out) {
  size_t at = 0;
  for (const OpDefinition::WordAttr& attr : attrs) {
    const uint64_t first = words[at++];
    if (attr.type == AttrType::kInt) {
      out->Set(attr.name, IntFromWord(first));
    } else if (attr.type == AttrType::kFloat) {
      out->Set(attr.name, FloatFromWord(first));
    } else {
      std::vector<int64_t> values;
      for (uint64_t word : words.subspan(at, first)) values.push_back(IntFromWord(word));
      at += first;
      out->Set(attr.name, std::move(values));
    }
  }
}

}  // namespace

size_t OpDefinition::AllocatedBytes() const {
  size_t bytes = op.size() + device.size() + attrs.AllocatedBytes();
  for (const WordAttr& attr : word_attrs) bytes += sizeof(attr) + attr.name.size();
  return bytes + sizeof(uint32_t) * donate.size() + sizeof(Scalar) * scalars.size();
}

absl::Status PackedOps::CheckDefinition(uint32_t number, const OpDefinition& definition) {
  const auto refuse = [number](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("definition ", number, what...));
  };
  if (definition.num_inputs > kMaxInputs) {
    return refuse(" has ", definition.num_inputs, " inputs, more than ", kMaxInputs);
  }
  if (definition.num_outputs == 0 || definition.num_outputs > kMaxOutputs) {
    return refuse(" has ", definition.num_outputs, " outputs; an op has 1 to ", kMaxOutputs);
  }
  if (definition.scalars.size() > kMaxScalars || definition.word_attrs.size() > kMaxWordAttrs ||
      definition.donate.size() > definition.num_inputs) {
    return refuse(" has more than ", kMaxScalars, " scalars, more than ", kMaxWordAttrs,
                  " attributes as words, or donates more inputs than it has");
  }
  std::vector<bool> is_scalar(definition.num_inputs), is_donated(definition.num_inputs);
  for (const auto& [position, dtype] : definition.scalars) {
    if (position >= definition.num_inputs || is_scalar[position]) {
      return refuse(" has a scalar as input ", position, ", which it lacks or names twice");
    }
    if (!IsValid(dtype)) return refuse(" has a scalar without a dtype");
    if (IsComplex(dtype)) {
      return refuse(" has a scalar of dtype ", DTypeName(dtype), "; scalars aren't complex");
    }
    is_scalar[position] = true;
  }
  if (definition.num_inputs > 0 && definition.scalars.size() == definition.num_inputs) {
    return refuse(" has only scalars as inputs; at least one must be a tensor");
  }
  for (uint32_t position : definition.donate) {
    if (position >= definition.num_inputs || is_donated[position] || is_scalar[position]) {
      return refuse(" donates input ", position, ", which it lacks, donates twice or is a scalar");
    }
    is_donated[position] = true;
  }
  for (const OpDefinition::WordAttr& attr : definition.word_attrs) {
    if (attr.type != AttrType::kInt && attr.type != AttrType::kFloat &&
        attr.type != AttrType::kInts) {
      return refuse(" has an attribute ", attr.name, " as words that is no int, float or ints");
    }
    const auto same_name = absl::c_count_if(
        definition.word_attrs, [&](const auto& other) { return other.name == attr.name; });
    if (same_name > 1 || definition.attrs.Find(attr.name) != nullptr) {
      return refuse(" has attribute ", attr.name, " twice");
    }
  }
  return absl::OkStatus();
}

absl::Status PackedOps::Define(uint32_t number, OpDefinition definition) {
  if (number == 0 || number > definitions_.size() + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("definition ", number, ": the next number is ", definitions_.size() + 1));
  }
  if (number > kMaxDefinitions) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kMaxDefinitions,
                     " definitions on one stream; define numbers again that are no longer used"));
  }
  TENSORD_RETURN_IF_ERROR(CheckDefinition(number, definition));
  const size_t bytes = definition.AllocatedBytes();
  const bool is_new = number > definitions_.size();
  const size_t replaced = is_new ? 0 : definitions_[number - 1].AllocatedBytes();
  if (definition_bytes_ - replaced + bytes > kMaxDefinitionBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the definitions of one stream have more than ", kMaxDefinitionBytes,
                     " bytes; send large attributes unpacked"));
  }
  Definition made{std::move(definition), {}, 0, Charge(session_->host_budget())};
  TENSORD_RETURN_IF_ERROR(made.charge.Add(kDefinitionHostBytes + static_cast<int64_t>(bytes)));
  definition_bytes_ += bytes - replaced;
  if (is_new) definitions_.emplace_back();
  definitions_[number - 1] = std::move(made);
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
    if (!definition.scalars.empty() || !definition.word_attrs.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a program names definition ", ops[0],
          ", which has scalars or attributes as words; give them as attributes of the definition"));
    }
    const absl::Span<const uint32_t> operands = ops.subspan(1, definition.num_inputs);
    spec.steps.push_back({definition.op,
                          &definition.attrs,
                          {operands.begin(), operands.end()},
                          definition.num_outputs});
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
    kept.charge = Charge(session_->host_budget());
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
                                                 absl::Span<const Handle> outputs,
                                                 absl::Span<const uint32_t> donate) {
  const auto found = programs_.find(number);
  if (found == programs_.end()) {
    return absl::NotFoundError(absl::StrCat("this stream has no program ", number));
  }
  TENSORD_RETURN_IF_ERROR(found->second.program.status());
  return engine_->Run(session_, *found->second.program, inputs, outputs, donate);
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
  // A round runs up to kMaxStepsPerLock steps inline. Then it passes at most one to the engine.
  for (bool first = true; !words->empty(); first = false) {
    if (!first && std::chrono::steady_clock::now() >= deadline) break;
    Step not_inline;
    Executor::InlineLock lock = AcquireInlineLock(released_at);
    absl::StatusOr<bool> all_ran = RunSteps(lock, words, command, &not_inline);
    const int64_t acquired_at = lock.acquired_at();
    released_at = lock.Release();
    if (released_at != 0) engine_->inline_watch().OnLockReleased(released_at - acquired_at);
    AbandonUploads(dropped_);
    dropped_.clear();
    TENSORD_RETURN_IF_ERROR(all_ran.status());
    if (*all_ran) continue;
    released_at = 0;
    const absl::StatusOr<TensorRefs> promised = RunViaEngine(not_inline);
    ++*command;
    if (promised.ok()) likely_slot_ = (*promised)[0]->slot();
    TENSORD_RETURN_IF_ERROR(
        on_result(*command, not_inline.handle, not_inline.definition->num_outputs, promised));
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
  const uint64_t distance = (*words)[1];
  step->inputs = words->subspan(2, definition.num_inputs);
  words->remove_prefix(2 + definition.num_inputs);
  TENSORD_ASSIGN_OR_RETURN(const size_t attr_words, CountAttrWords(definition.word_attrs, *words));
  step->attr_words = words->first(attr_words);
  words->remove_prefix(attr_words);
  step->definition = &definition;
  step->handle = last_handle_ + distance;
  last_handle_ = step->handle + definition.num_outputs - 1;
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
  const RefusalCountingPause pause;  // RunViaEngine() tries a refused op again, and counts it
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
  const Definition& definition = *step.definition;
  TensorRefs inputs;
  for (uint64_t distance : step.inputs) {
    const bool is_scalar =
        !definition.scalars.empty() && ScalarAt(definition.scalars, inputs.size()) != nullptr;
    const TensorRef* input = is_scalar ? nullptr : table.Find(step.handle - distance);
    if (!is_scalar && (input == nullptr || !IsReady(**input))) return false;
    inputs.push_back(is_scalar ? nullptr : *input);
  }
  if (!definition.scalars.empty() && !AddScalars(step, &inputs)) return false;
  PreparedOp* op = FindPreparedOp(step, inputs);
  if (op == nullptr || op->slot() != likely_slot_ || !op->runs_inline()) return false;
  if (definition.num_outputs != op->outputs().size()) return false;
  if (definition.num_outputs > 1 || !definition.donate.empty()) {
    return TryRunGeneral(step, *op, inputs, table);
  }
  absl::StatusOr<BufferRef> result = engine_->inline_watch().Measure(*op, [&] {
    return op->RunSingle(session_->account(*likely_slot_), inputs, /*checks=*/nullptr);
  });
  if (!result.ok()) return false;
  return table.Insert(Tensor::Make(step.handle, op->output(), likely_slot_, *std::move(result)));
}

bool PackedOps::TryRunGeneral(const Step& step, PreparedOp& op, absl::Span<const TensorRef> inputs,
                              Session::Table& table) {
  // The outputs are inserted first, because the op can't be refused after it has overwritten an
  // input.
  TensorRefs outputs;
  const auto remove_outputs = [&] {
    for (const TensorRef& output : outputs) table.TakeOut(output->handle());
  };
  for (const TensorSpec& spec : op.outputs()) {
    TensorRef output = Tensor::Make(step.handle + outputs.size(), spec, likely_slot_);
    if (!table.Insert(output)) {
      remove_outputs();
      return false;
    }
    outputs.push_back(std::move(output));
  }
  absl::Span<const uint32_t> donate = step.definition->donate;
  const auto handle_of = [&](uint32_t position) { return step.handle - step.inputs[position]; };
  // Without the table's reference, the op can overwrite a donated input. No other thread can see
  // that the table lacks it, because the table is locked.
  for (uint32_t position : donate) table.DetachTensor(handle_of(position));
  absl::StatusOr<BufferRefs> results = engine_->inline_watch().Measure(
      op, [&] { return op.Run(session_->account(*likely_slot_), inputs, /*checks=*/nullptr); });
  for (uint32_t position : donate) table.AttachTensor(handle_of(position), inputs[position]);
  if (!results.ok()) {
    remove_outputs();
    return false;
  }
  for (size_t i = 0; i < outputs.size(); ++i) outputs[i]->Finish(std::move((*results)[i]));
  for (uint32_t position : donate) {
    TensorRef donated = table.TakeOut(handle_of(position));
    if (donated != nullptr) dropped_.push_back(std::move(donated));
  }
  return true;
}

bool PackedOps::AddScalars(const Step& step, TensorRefs* inputs) {
  DeviceSlot& slot = *likely_slot_;
  if (!slot.device->host_accessible()) return false;
  // The device of an op is that of its tensors, also if its first input is a scalar.
  for (const TensorRef& input : *inputs) {
    if (input != nullptr && input->slot() != &slot) return false;
  }
  for (const OpDefinition::Scalar& scalar : step.definition->scalars) {
    const ScalarInput value = {scalar.position, scalar.dtype, step.inputs[scalar.position]};
    absl::StatusOr<BufferRef> buffer =
        AllocateFor(session_->account(slot), *slot.device, SizeOf(scalar.dtype));
    if (!buffer.ok()) return false;
    StoreScalar(value, (*buffer)->data());
    (*inputs)[scalar.position] = Tensor::Make(Handle{0}, SpecOf(value), &slot, *std::move(buffer));
  }
  return true;
}

PreparedOp* PackedOps::FindPreparedOp(const Step& step, absl::Span<const TensorRef> inputs) {
  Definition& definition = *step.definition;
  for (const RecentOp& recent : definition.recent) {
    if (FirstMismatch(recent.op->inputs(), recent.op->slot(), inputs) == inputs.size() &&
        absl::MakeConstSpan(recent.attr_words) == step.attr_words) {
      return recent.op.get();
    }
  }
  absl::StatusOr<PreparedOpRef> op = engine_->FindPreparedOp(
      *session_, {definition.op, {}, 0, AttrsOf(step), definition.device}, inputs);
  if (!op.ok()) return nullptr;
  if (step.attr_words.size() > kMaxKeptAttrWords) {
    unkept_op_ = *std::move(op);
    return unkept_op_.get();
  }
  if (definition.recent.size() < kMaxRecentOps) definition.recent.emplace_back();
  RecentOp& place = definition.recent[definition.next++ % kMaxRecentOps];
  place.op = *std::move(op);
  place.attr_words.assign(step.attr_words.begin(), step.attr_words.end());
  return place.op.get();
}

Attributes PackedOps::AttrsOf(const Step& step) {
  Attributes attrs = step.definition->attrs;
  AddWordAttrs(step.definition->word_attrs, step.attr_words, &attrs);
  return attrs;
}

absl::StatusOr<TensorRefs> PackedOps::RunViaEngine(const Step& step) {
  const Definition& definition = *step.definition;
  absl::InlinedVector<Handle, 3> inputs;
  for (uint64_t distance : step.inputs) inputs.push_back(step.handle - distance);
  absl::InlinedVector<ScalarInput, 2> scalars;
  for (const OpDefinition::Scalar& scalar : definition.scalars) {
    scalars.push_back({scalar.position, scalar.dtype, step.inputs[scalar.position]});
  }
  return engine_->RunOp(session_,
                        {definition.op, inputs, step.handle, AttrsOf(step), definition.device,
                         definition.num_outputs, definition.donate, scalars});
}

}  // namespace tensord::server
