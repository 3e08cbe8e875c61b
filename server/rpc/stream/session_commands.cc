#include "tensord/server/rpc/stream/session_commands.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/status_convert.h"

namespace tensord::server {
namespace {

// After this many posted commands, reading stops until the devices have run them.
constexpr int64_t kCommandsInFlight = 16384;
// While this many answers are to come or to be sent, reading stops. Errors are counted separately.
constexpr size_t kMaxUnanswered = 4096;
// The limit of answers that the client has not acknowledged.
constexpr size_t kMaxUnacknowledged = 1 << 16;
// The limit of the memory for answers, including answers that are still to come, and the estimated
// memory of one answer without its texts.
constexpr int64_t kMaxAnswerBytes = 128 << 20;
constexpr int64_t kAnswerBytes = 256;
// The limits of one response: answers, errors among these answers, and bytes of elements and of
// their errors' texts. An answer that begins below the last limit may exceed it.
constexpr int kMaxAnswersPerResponse = 4096;
constexpr int kMaxErrorsPerResponse = 256;
constexpr int64_t kMaxElementBytesPerResponse = 1 << 20;

// How many commands are applied between two checks of the deadline.
constexpr int kCommandsPerDeadlineCheck = 16;
// A command with more ops or handles takes long.
constexpr int kMaxShortCommand = 1024;

// Returns whether a command can take more than about a millisecond. A batch can be interrupted, so
// it doesn't count.
bool TakesLong(const v1::Command& command) {
  switch (command.command_case()) {
    case v1::Command::kProgram:
      return command.program().ops_size() > kMaxShortCommand;
    case v1::Command::kDrop:
      // A program that is dropped may have many ops.
      return command.drop().programs_size() > 0 || command.drop().handles_size() > kMaxShortCommand;
    case v1::Command::kRun:
      return command.run().inputs_size() + command.run().outputs_size() > kMaxShortCommand;
    case v1::Command::kOp:
      return command.op().inputs_size() > kMaxShortCommand;
    default:
      return false;
  }
}

int64_t HostBytesOf(const v1::HandleError& error) {
  return kAnswerBytes +
         static_cast<int64_t>(error.message().size() + error.status_details().size());
}

}  // namespace

absl::StatusOr<std::shared_ptr<SessionCommands>> SessionCommands::Of(ServiceContext* context,
                                                                     const SessionRef& session) {
  TENSORD_ASSIGN_OR_RETURN(std::shared_ptr<StreamState> state, session->Stream([&] {
    return std::make_shared<SessionCommands>(context, session);
  }));
  return std::static_pointer_cast<SessionCommands>(std::move(state));
}

SessionCommands::SessionCommands(ServiceContext* context, SessionRef session)
    : context_(context),
      session_(std::move(session)),
      packed_(context->engine, session_),
      answer_charge_(session_->host_budget(), Charge::kBlockBytes) {}

absl::Status SessionCommands::Attach(const std::shared_ptr<CommandWire>& wire,
                                     const v1::Attach& attach, uint64_t answers_received) {
  std::shared_ptr<CommandWire> previous;
  {
    MutexLock lock(&mu_);
    previous = wire_.lock();
    if (previous != nullptr && !attach.resumable()) {
      return absl::FailedPreconditionError(
          "another stream is attached to this session; a session has one at a time");
    }
    if (resumable_ && attach.attempt() != 0 && attach.attempt() < attempt_) {
      return absl::AbortedError("a later stream of the session has replaced this one");
    }
    attempt_ = attach.attempt();
    wire_ = wire;
    owner_ = wire.get();
    if (!resumable_ || !attach.resumable()) ResetAnswersLocked();
    resumable_ = attach.resumable();
    sent_ = 0;
    unsent_errors_ = std::count_if(answers_.begin(), answers_.end(), [](const Answer& answer) {
      return std::holds_alternative<v1::HandleError>(answer);
    });
    if (resumable_) DropReceivedAnswersLocked(answers_received);
    answers_refused_ = absl::OkStatus();
    // Makes the next response acknowledge commands at once, also after a reconnect.
    acked_ = ~uint64_t{0};
    unacked_bytes_ = 0;
    ack_commands_ = attach.ack_commands();
    ack_bytes_ = attach.ack_bytes();
    session_->SetStreamAttached(true);
  }
  if (previous != nullptr) {
    previous->End(absl::AbortedError("another stream of the session has replaced this one"));
  }
  // OnSessionClosed() may have come before `wire` was attached.
  return session_->closed() ? SessionEndedError() : absl::OkStatus();
}

void SessionCommands::Detach(const CommandWire* wire) {
  MutexLock lock(&mu_);
  if (owner_ != wire) return;
  owner_ = nullptr;
  wire_.reset();
  if (!resumable_) ResetAnswersLocked();  // no connection can send these answers
  session_->SetStreamAttached(false);
}

absl::StatusOr<SessionCommands::Progress> SessionCommands::Apply(
    const CommandWire* wire, const v1::SessionStreamRequest& request, int64_t message_bytes,
    Clock::time_point deadline) {
  absl::StatusOr<Progress> progress;
  {
    MutexLock lock(&apply_mu_);
    absl::Status begun = FinishReplaced();
    if (begun.ok()) begun = Begin(wire, request, message_bytes);
    progress = begun.ok() ? ContinueMessage(deadline) : begun;
  }
  if (session_->closed()) TryDropPrograms();
  return progress;
}

absl::StatusOr<SessionCommands::Progress> SessionCommands::Continue(
    const v1::SessionStreamRequest& request, Clock::time_point deadline) {
  absl::StatusOr<Progress> progress = Progress::kDone;
  {
    MutexLock lock(&apply_mu_);
    if (message_.request == &request) progress = ContinueMessage(deadline);
  }
  if (session_->closed()) TryDropPrograms();
  return progress;
}

bool SessionCommands::unfinished() {
  if (!apply_mu_.TryLock()) return true;
  const bool unfinished = message_.request != nullptr;
  apply_mu_.Unlock();
  return unfinished;
}

void SessionCommands::OnSessionClosed(const absl::Status& error) {
  TryDropPrograms();
  if (error.ok()) return;
  std::shared_ptr<CommandWire> wire;
  {
    MutexLock lock(&mu_);
    wire = wire_.lock();
  }
  if (wire != nullptr) wire->End(error);
}

void SessionCommands::TryDropPrograms() {
  if (!apply_mu_.TryLock()) return;
  packed_.DropPrograms();
  apply_mu_.Unlock();
}

absl::Status SessionCommands::FinishReplaced() {
  if (message_.request == nullptr) return absl::OkStatus();
  const uint64_t stream_number = message_.stream_number;
  const absl::Status finished = ContinueMessage(PackedOps::kNoDeadline).status();
  MutexLock lock(&mu_);
  return stream_number == stream_number_ ? finished : absl::OkStatus();
}

absl::Status SessionCommands::Begin(const CommandWire* wire,
                                    const v1::SessionStreamRequest& request,
                                    int64_t message_bytes) {
  uint64_t stream_number = 0;
  {
    MutexLock lock(&mu_);
    if (owner_ != wire) {
      return absl::AbortedError("another stream of the session has replaced this one");
    }
    if (resumable_) DropReceivedAnswersLocked(request.answers_received());
    if (answers_.size() > kMaxUnacknowledged) {
      return absl::ResourceExhaustedError(
          absl::StrCat(answers_.size(), " answers haven't been acknowledged by answers_received; ",
                       kMaxUnacknowledged, " is the limit"));
    }
    stream_number = stream_number_;
  }
  TENSORD_ASSIGN_OR_RETURN(const bool due, CheckDue(request));
  message_ = {.request = &request,
              .bytes = message_bytes,
              .stream_number = stream_number,
              .next_command = due ? 0 : request.commands_size()};
  return absl::OkStatus();
}

absl::StatusOr<SessionCommands::Progress> SessionCommands::ContinueMessage(
    Clock::time_point deadline) {
  const absl::StatusOr<Progress> progress = ApplyCommands(deadline);
  if (progress.ok() && *progress != Progress::kDone) return progress;
  session_->NotifyReceived(taken_);
  AwaitPostedCommands();
  MutexLock lock(&mu_);
  received_ = taken_;
  unacked_bytes_ += std::exchange(message_, {}).bytes;
  return progress;
}

absl::StatusOr<bool> SessionCommands::CheckDue(const v1::SessionStreamRequest& request) {
  if (request.commands().empty()) return false;
  {
    MutexLock lock(&mu_);
    if (!resumable_) return true;
  }
  if (request.first_command() == taken_ + 1) return true;
  if (request.first_command() != 0 && request.first_command() <= taken_) return false;
  return absl::InvalidArgumentError(absl::StrCat("a message says first_command ",
                                                 request.first_command(), ", but command ",
                                                 taken_ + 1, " is due"));
}

absl::StatusOr<SessionCommands::Progress> SessionCommands::ApplyCommands(
    Clock::time_point deadline) {
  const v1::SessionStreamRequest& request = *message_.request;
  while (message_.next_command < request.commands_size()) {
    const v1::Command& command = request.commands(message_.next_command);
    if (deadline != PackedOps::kNoDeadline && TakesLong(command)) return Progress::kLongCommand;
    if (command.has_batch()) {
      TENSORD_ASSIGN_OR_RETURN(const Progress progress, ApplyBatch(command.batch(), deadline));
      if (progress != Progress::kDone) return progress;
    } else {
      TENSORD_RETURN_IF_ERROR(ApplyCommand(command));
    }
    TENSORD_RETURN_IF_ERROR(CheckAnswers());
    ++message_.next_command;
    message_.next_word = 0;
    const bool at_end = message_.next_command == request.commands_size();
    if (message_.next_command % kCommandsPerDeadlineCheck == 0 && !at_end &&
        Clock::now() >= deadline) {
      return Progress::kTimedOut;
    }
  }
  return Progress::kDone;
}

absl::Status SessionCommands::CheckAnswers() const {
  MutexLock lock(&mu_);
  TENSORD_RETURN_IF_ERROR(answers_refused_);
  if (answer_bytes_ + kAnswerBytes * awaited_ < kMaxAnswerBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the answers to the session's commands take more than ", kMaxAnswerBytes,
                   " bytes; send fewer commands in a message, and read the answers"));
}

int64_t SessionCommands::ChargedAnswerBytesLocked() const {
  return std::max<int64_t>(0, answer_bytes_ - Session::kPrepaidAnswerBytes);
}

absl::Status SessionCommands::ChargeAnswerLocked(int64_t bytes) {
  const int64_t charged_before = ChargedAnswerBytesLocked();
  answer_bytes_ += bytes;
  const int64_t more = ChargedAnswerBytesLocked() - charged_before;
  absl::Status charged = more == 0 ? absl::OkStatus() : answer_charge_.Add(more);
  if (!charged.ok()) answer_bytes_ -= bytes;
  return charged;
}

void SessionCommands::RefundAnswerLocked(int64_t bytes) {
  const int64_t charged_before = ChargedAnswerBytesLocked();
  answer_bytes_ -= bytes;
  answer_charge_.Return(charged_before - ChargedAnswerBytesLocked());
}

void SessionCommands::AwaitPostedCommands() {
  if (posted_since_await_ < kCommandsInFlight) return;
  posted_since_await_ = 0;
  {
    MutexLock lock(&mu_);
    catching_up_ = true;
  }
  auto left = std::make_shared<std::atomic<size_t>>(context_->engine->slots().size());
  for (DeviceSlot* slot : context_->engine->slots()) {
    slot->executor->Post(
        session_->lane(*slot),
        [self = shared_from_this(), left] {
          if (left->fetch_sub(1, std::memory_order_acq_rel) != 1) return;
          {
            MutexLock lock(&self->mu_);
            self->catching_up_ = false;
          }
          self->Notify();
        },
        Executor::Length::kShort);
  }
}

uint64_t SessionCommands::Expect() {
  MutexLock lock(&mu_);
  if (message_.stream_number == stream_number_) ++awaited_;
  return message_.stream_number;
}

void SessionCommands::Deliver(uint64_t expected_by, Answer answer) {
  {
    MutexLock lock(&mu_);
    if (expected_by != stream_number_) return;
    --awaited_;
    absl::Status charged = ChargeAnswerLocked(kAnswerBytes);
    if (charged.ok()) {
      answers_.push_back(std::move(answer));
    } else {
      answers_refused_ = std::move(charged);  // ends the stream
    }
  }
  Notify();
}

void SessionCommands::AppendError(Handle handle, uint64_t number, const absl::Status& error) {
  v1::HandleError out;
  out.set_handle(handle);
  out.set_command(number);
  out.set_code(static_cast<int>(error.code()));
  out.set_message(WireMessage(error));
  out.set_status_details(WireDetails(error));
  MutexLock lock(&mu_);
  if (owner_ == nullptr && !resumable_) return;  // no connection will send it
  // At a limit of host memory, the client gets the first errors. The handles keep the others.
  if (!ChargeAnswerLocked(HostBytesOf(out)).ok()) return;
  ++unsent_errors_;
  answers_.push_back(std::move(out));
}

void SessionCommands::DropReceivedAnswersLocked(uint64_t answers_received) {
  while (forgotten_answers_ < answers_received && !answers_.empty()) {
    const auto* error = std::get_if<v1::HandleError>(&answers_.front());
    RefundAnswerLocked(error == nullptr ? kAnswerBytes : HostBytesOf(*error));
    if (sent_ > 0) {
      --sent_;
    } else if (error != nullptr) {
      --unsent_errors_;
    }
    answers_.pop_front();
    ++forgotten_answers_;
  }
}

void SessionCommands::ResetAnswersLocked() {
  ++stream_number_;
  awaited_ = 0;
  forgotten_answers_ += answers_.size();
  answers_.clear();
  sent_ = unsent_errors_ = 0;
  RefundAnswerLocked(answer_bytes_);
}

void SessionCommands::Notify() {
  std::shared_ptr<CommandWire> wire;
  {
    MutexLock lock(&mu_);
    wire = wire_.lock();
  }
  if (wire != nullptr) wire->Resume();
}

bool SessionCommands::MayRead() const {
  MutexLock lock(&mu_);
  const size_t unanswered = static_cast<size_t>(awaited_) + UnsentLocked() - unsent_errors_;
  return !catching_up_ && unanswered < kMaxUnanswered && unsent_errors_ < kMaxUnanswered;
}

bool SessionCommands::AllAnswered() const {
  MutexLock lock(&mu_);
  return awaited_ == 0 && UnsentLocked() == 0;
}

bool SessionCommands::MustAckLocked() const {
  return acked_ > received_ || received_ - acked_ >= ack_commands_ ||
         (ack_bytes_ != 0 && unacked_bytes_ >= ack_bytes_);
}

bool SessionCommands::NextResponse(const CommandWire* wire, bool must_ack,
                                   v1::SessionStreamResponse* response,
                                   std::vector<ReadyElements>* ready) {
  MutexLock lock(&mu_);
  if (owner_ != wire) return false;
  const bool ack = acked_ != received_ && (must_ack || MustAckLocked());
  response->set_commands_received(received_);
  if (resumable_) response->set_answers(forgotten_answers_ + sent_);
  if (!ack && UnsentLocked() == 0) return false;
  acked_ = received_;
  unacked_bytes_ = 0;
  int64_t bytes = 0;
  for (int count = 0;
       count < kMaxAnswersPerResponse && UnsentLocked() > 0 &&
       bytes < kMaxElementBytesPerResponse && response->errors_size() < kMaxErrorsPerResponse;
       ++count) {
    Answer& answer = answers_[sent_];
    if (auto* error = std::get_if<v1::HandleError>(&answer)) {
      *response->add_errors() = *error;
      --unsent_errors_;
    } else if (auto* elements = std::get_if<ReadyElements>(&answer)) {
      bytes += elements->status.ok() ? elements->tensor->spec().size_bytes()
                                     : static_cast<int64_t>(elements->status.message().size());
      ready->push_back(*elements);
    } else {
      *response->add_barriers() = std::get<v1::BarrierDone>(answer);
    }
    ++sent_;
  }
  if (resumable_) {
    response->set_answers(forgotten_answers_ + sent_);
  } else {
    DropReceivedAnswersLocked(forgotten_answers_ + sent_);
  }
  return true;
}

}  // namespace tensord::server
