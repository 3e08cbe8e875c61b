#include "tensord/client/internal/command_queue.h"

#include <algorithm>
#include <variant>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/internal/interruption.h"
#include "tensord/client/internal/wait_hooks.h"
#include "tensord/client/internal/wire.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::internal {
namespace {

// Returns the positions of the bits that are set.
absl::InlinedVector<uint32_t, 4> Positions(uint32_t bits) {
  absl::InlinedVector<uint32_t, 4> positions;
  for (uint32_t i = 0; i < 32; ++i) {
    if ((bits >> i & 1) != 0) positions.push_back(i);
  }
  return positions;
}

// Adds to an atomic that other threads only read. Unlike fetch_add, it takes no longer than for an
// integer that isn't atomic.
void AddAsOnlyWriter(int64_t value, std::atomic<int64_t>* sum) {
  sum->store(sum->load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
}

v1::Definition::WordAttr::Encoding EncodingOf(const AttrValue& value) {
  if (std::holds_alternative<int64_t>(value)) return v1::Definition::WordAttr::ENCODING_INT;
  if (std::holds_alternative<double>(value)) return v1::Definition::WordAttr::ENCODING_FLOAT;
  return v1::Definition::WordAttr::ENCODING_INTS;
}

// Returns the definition for the steps of an op.
v1::Definition MakeDefinition(const OpToQueue& op, uint32_t number, size_t num_outputs) {
  v1::Definition definition;
  definition.set_number(number);
  definition.set_name(op.op.data(), op.op.size());
  definition.set_num_inputs(static_cast<uint32_t>(op.inputs.size()));
  if (num_outputs > 1) definition.set_num_outputs(static_cast<uint32_t>(num_outputs));
  if (op.device != nullptr) definition.set_device(op.device->ToString());
  for (const auto& [name, value] : *op.attrs) {
    if (IsWordAttr(value)) {
      v1::Definition::WordAttr* attr = definition.add_word_attrs();
      attr->set_name(name);
      attr->set_encoding(EncodingOf(value));
    } else {
      AttrToProto(value, &(*definition.mutable_attrs())[name]);
    }
  }
  for (uint32_t position : Positions(op.donate)) definition.add_donate(position);
  for (uint32_t position : Positions(op.scalars)) {
    v1::Definition::Scalar* scalar = definition.add_scalars();
    scalar->set_position(position);
    scalar->set_dtype(static_cast<v1::DType>(op.inputs[position].spec->dtype));
  }
  return definition;
}

// Returns the definition for an op of a program.
v1::Definition MakeDefinition(const ProgramOp& op, uint32_t number) {
  v1::Definition definition;
  definition.set_number(number);
  definition.set_name(op.op.data(), op.op.size());
  definition.set_num_inputs(static_cast<uint32_t>(op.operands.size()));
  if (op.num_outputs > 1) definition.set_num_outputs(op.num_outputs);
  for (const auto& [name, value] : op.attrs) {
    AttrToProto(value, &(*definition.mutable_attrs())[name]);
  }
  return definition;
}

}  // namespace

std::string CommandQueue::Attach(const std::string& session) {
  // The server acknowledges each eighth of the queue's limits, long before a push must wait.
  constexpr int64_t kShare = 8;
  constexpr int64_t kMaxThreshold = 1 << 24;
  v1::SessionStreamRequest request;
  v1::Attach& attach = *request.mutable_attach();
  attach.set_session(session);
  attach.set_resumable(true);
  attach.set_ack_commands(
      static_cast<uint32_t>(std::clamp<int64_t>(max_pending_commands_ / kShare, 1, kMaxThreshold)));
  attach.set_ack_bytes(
      static_cast<uint32_t>(std::clamp<int64_t>(max_pending_bytes_ / kShare, 1, kMaxThreshold)));
  MutexLock lock(&mu_);
  attach.set_attempt(++attempts_);
  sent_ = 0;
  num_unsent_commands_.store(static_cast<int64_t>(pushed_ - acknowledged_),
                             std::memory_order_relaxed);
  answers_acknowledged_ = answers_;
  unacknowledged_bytes_ = 0;
  has_answers_to_acknowledge_.store(
      false, std::memory_order_relaxed);  // this message acknowledges all answers
  request.set_answers_received(answers_);
  return request.SerializeAsString();
}

void CommandQueue::CompleteMessageLocked() {
  auto message = std::make_shared<std::string>(encoder_.Take(complete_commands_ + 1, answers_));
  complete_bytes_ += static_cast<int64_t>(message->size());
  messages_.push_back({complete_commands_ + 1, pushed_, std::move(message)});
  complete_commands_ = pushed_;
}

bool CommandQueue::FullLocked() const {
  return static_cast<int64_t>(pushed_ - acknowledged_) >= max_pending_commands_ ||
         complete_bytes_ + encoder_.size_bytes() >= max_pending_bytes_;
}

absl::Status CommandQueue::WaitForRoom() {
  if (!status_.ok() || !FullLocked()) return status_;
  WaitTimer timer(counters_, WaitKind::kFullQueue, {"room in the command queue"});
  bool interrupted = false;
  while (status_.ok() && FullLocked()) {
    mu_.Unlock();
    {
      const HookedWait hooked;
      if (on_full_) on_full_();
      mu_.Lock();
      if (status_.ok() && FullLocked()) WaitOrCheck(&space_, &mu_);
      mu_.Unlock();
      interrupted = Interruption::Interrupted();
    }
    mu_.Lock();
    if (interrupted) return InterruptedError();
  }
  return status_;
}

void CommandQueue::CountLocked(int64_t commands) {
  pushed_ += static_cast<uint64_t>(commands);
  AddAsOnlyWriter(commands, &num_unsent_commands_);
  AddAsOnlyWriter(commands, &counters_->commands);
  if (encoder_.size_bytes() >= kMaxMessageBytes) CompleteMessageLocked();
}

absl::Status CommandQueue::Push(const v1::Command& command, uint64_t* number) {
  MutexLock lock(&mu_);
  TENSORD_RETURN_IF_ERROR(WaitForRoom());
  encoder_.Append(command);
  CountLocked(1);
  if (number != nullptr) *number = pushed_;
  return absl::OkStatus();
}

absl::Status CommandQueue::PushOp(const OpToQueue& op, QueuedOp* queued) {
  MutexLock lock(&mu_);
  TENSORD_RETURN_IF_ERROR(WaitForRoom());
  TENSORD_ASSIGN_OR_RETURN(const OpTable::Definition found, ops_.Find(op, &queued->specs));
  const size_t num_outputs = queued->specs.size();
  const uint64_t output = NextHandleLocked(num_outputs);
  const auto [definition, is_new] = found;
  if (definition == 0) {
    AppendUnpackedLocked(op, output, num_outputs);
  } else {
    if (is_new) AppendDefinitionLocked(MakeDefinition(op, definition, num_outputs));
    encoder_.BeginStep(definition, output);
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.is_scalar(i)) {
        encoder_.AppendWord(op.inputs[i].handle);
      } else {
        encoder_.AppendInput(op.inputs[i].handle);
      }
    }
    if (op.prepared != nullptr) {
      encoder_.AppendEncoded(op.prepared->words);
    } else {
      CommandEncoder* const encoder = &encoder_;
      for (const auto& [name, value] : *op.attrs) {
        if (!IsWordAttr(value)) continue;
        ForEachWord(value, [encoder](uint64_t word) { encoder->AppendWord(word); });
      }
    }
    encoder_.EndStep(num_outputs);
  }
  CountLocked(1);
  queued->output = output;
  return absl::OkStatus();
}

void CommandQueue::AppendDefinitionLocked(const v1::Definition& definition) {
  v1::Command command;
  *command.mutable_define() = definition;
  encoder_.Append(command);
  CountLocked(1);
}

absl::StatusOr<uint32_t> CommandQueue::PushProgram(v1::Program program,
                                                   absl::Span<const ProgramOp> ops) {
  constexpr uint32_t kMaxPrograms = 4096;
  MutexLock lock(&mu_);
  TENSORD_RETURN_IF_ERROR(WaitForRoom());
  if (live_programs_ == kMaxPrograms) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this connection has ", kMaxPrograms, " programs, its limit; destroy some"));
  }
  TENSORD_RETURN_IF_ERROR(ops_.Reserve(ops.size()));
  for (const ProgramOp& op : ops) {
    const auto [number, is_new] =
        ops_.DefineForProgram(op.op, op.operands.size(), op.num_outputs, op.attrs);
    if (is_new) AppendDefinitionLocked(MakeDefinition(op, number));
    program.add_ops(number);
    program.mutable_ops()->Add(op.operands.begin(), op.operands.end());
  }
  ++live_programs_;
  program.set_number(++programs_);
  v1::Command command;
  *command.mutable_program() = std::move(program);
  encoder_.Append(command);
  CountLocked(1);
  return programs_;
}

void CommandQueue::PushDropProgram(uint32_t number) {
  v1::Command command;
  command.mutable_drop()->add_programs(number);
  MutexLock lock(&mu_);
  if (!status_.ok()) return;
  --live_programs_;
  encoder_.Append(command);
  CountLocked(1);
}

void CommandQueue::AppendUnpackedLocked(const OpToQueue& op, uint64_t output, size_t num_outputs) {
  v1::Command command;
  v1::Op* proto = command.mutable_op();
  proto->set_name(op.op.data(), op.op.size());
  for (const QueuedInput& input : op.inputs) proto->add_inputs(input.handle);
  proto->set_output(output);
  if (num_outputs > 1) proto->set_num_outputs(static_cast<uint32_t>(num_outputs));
  if (op.device != nullptr) proto->set_device(op.device->ToString());
  for (const auto& [name, value] : *op.attrs) AttrToProto(value, &(*proto->mutable_attrs())[name]);
  for (uint32_t position : Positions(op.donate)) proto->add_donate(position);
  encoder_.Append(command);
}

void CommandQueue::PushDrop(uint64_t handle) {
  MutexLock lock(&mu_);
  if (!status_.ok()) return;
  encoder_.AppendDrop(handle);
  CountLocked(1);
}

CommandQueue::Message CommandQueue::Take() {
  MutexLock lock(&mu_);
  if (!status_.ok()) return nullptr;
  if (sent_ == messages_.size() && !encoder_.empty()) CompleteMessageLocked();
  Message message;
  if (sent_ < messages_.size()) {
    const CompleteMessage& complete = messages_[sent_++];
    message = complete.message;
    if (sent_ == messages_.size() && encoder_.empty())
      num_unsent_commands_.store(0, std::memory_order_relaxed);
  } else if (MustAcknowledgeLocked()) {
    message = std::make_shared<std::string>(encoder_.Take(complete_commands_ + 1, answers_));
  } else {
    return nullptr;
  }
  answers_acknowledged_ = answers_;
  unacknowledged_bytes_ = 0;
  has_answers_to_acknowledge_.store(false, std::memory_order_relaxed);
  AddAsOnlyWriter(1, &counters_->messages);
  return message;
}

bool CommandQueue::MustAcknowledgeLocked() const {
  // The server keeps unacknowledged answers, and an answer may hold device memory.
  constexpr uint64_t kMaxUnacknowledgedAnswers = 64;
  constexpr int64_t kMaxUnacknowledgedBytes = 256 * 1024;
  return answers_ - answers_acknowledged_ >= kMaxUnacknowledgedAnswers ||
         unacknowledged_bytes_ >= kMaxUnacknowledgedBytes;
}

void CommandQueue::Acknowledge(uint64_t received, uint64_t answers, int64_t bytes) {
  MutexLock lock(&mu_);
  if (answers > answers_) {
    answers_ = answers;
    unacknowledged_bytes_ += bytes;
    has_answers_to_acknowledge_.store(MustAcknowledgeLocked(), std::memory_order_relaxed);
  }
  acknowledged_ = std::max(acknowledged_, std::min(received, pushed_));
  while (!messages_.empty() && messages_.front().last <= acknowledged_) {
    const CompleteMessage& complete = messages_.front();
    complete_bytes_ -= static_cast<int64_t>(complete.message->size());
    if (sent_ > 0) {
      --sent_;
    } else {  // it was sent on an earlier connection
      AddAsOnlyWriter(-static_cast<int64_t>(complete.last - complete.first + 1),
                      &num_unsent_commands_);
    }
    messages_.pop_front();
  }
  space_.SignalAll();
}

void CommandQueue::Close(absl::Status reason) {
  {
    MutexLock lock(&mu_);
    if (!status_.ok()) return;
    status_ = std::move(reason);
    messages_.clear();
    sent_ = 0;
    complete_bytes_ = 0;
    encoder_ = CommandEncoder();
    num_unsent_commands_.store(0, std::memory_order_relaxed);
    has_answers_to_acknowledge_.store(false, std::memory_order_relaxed);
  }
  space_.SignalAll();
}

absl::Status CommandQueue::status() const {
  MutexLock lock(&mu_);
  return status_;
}

uint64_t CommandQueue::pushed() const {
  MutexLock lock(&mu_);
  return pushed_;
}

}  // namespace tensord::internal
