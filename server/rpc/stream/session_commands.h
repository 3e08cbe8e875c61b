// The commands and answers of a session's stream, independent of the connection that carries them.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/engine/packed_ops.h"
#include "tensord/server/rpc/service_context.h"
#include "tensord/server/session/session.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::server {

// A connection of the stream, as SessionCommands uses it.
class CommandWire {
 public:
  // Writes the answers that are ready, and continues reading if MayRead(). Thread-safe. The caller
  // holds no lock.
  virtual void Resume() = 0;
  // Ends this connection with an error. Thread-safe. The caller holds no lock.
  virtual void End(const absl::Status& error) = 0;

 protected:
  ~CommandWire() = default;
};

// Applies commands in order, each exactly once. Keeps the answers until they are sent or, if the
// stream is resumable, until the client has acknowledged them. It exists as long as its session. So
// if a connection breaks, the next connection continues with this state. Thread-safe.
class SessionCommands final : public StreamState,
                              public std::enable_shared_from_this<SessionCommands> {
 public:
  // A GetElements whose tensor is readable, or has failed.
  struct ReadyElements {
    uint64_t request_id;
    TensorRef tensor;
    absl::Status status;
  };

  // Returns the session's commands. The first call for a session creates them. If the session is
  // closed, returns FAILED_PRECONDITION.
  static absl::StatusOr<std::shared_ptr<SessionCommands>> Of(ServiceContext* context,
                                                             const SessionRef& session);

  SessionCommands(ServiceContext* context, SessionRef session);

  // Makes `wire` the connection of the stream. If another connection is attached, a resumable
  // `attach` replaces it, and an `attach` that isn't resumable returns FAILED_PRECONDITION. If a
  // later attempt of a resumable stream has already attached, returns ABORTED. If the stream is
  // resumable, the client has received the answers up to number `answers_received`. If the session
  // is closed, returns FAILED_PRECONDITION.
  absl::Status Attach(const std::shared_ptr<CommandWire>& wire, const v1::Attach& attach,
                      uint64_t answers_received);
  // Detaches `wire`. If another connection has replaced it, does nothing.
  void Detach(const CommandWire* wire);

  // kTimedOut means that the deadline has passed. kLongCommand means that the next command takes
  // long, and there is a deadline.
  enum class Progress { kDone, kTimedOut, kLongCommand };
  using Clock = std::chrono::steady_clock;

  // Applies the commands of a message from `wire`. After an error, the caller must end the stream.
  // If another connection has replaced `wire`, returns ABORTED. If the result isn't kDone,
  // `request` must remain valid until Continue(request) has returned kDone or an error.
  absl::StatusOr<Progress> Apply(const CommandWire* wire, const v1::SessionStreamRequest& request,
                                 int64_t message_bytes, Clock::time_point deadline);
  // Applies the next commands of a message that is unfinished. If a later connection has finished
  // it, returns kDone.
  absl::StatusOr<Progress> Continue(const v1::SessionStreamRequest& request,
                                    Clock::time_point deadline);

  // Returns whether another connection's message is unfinished, or may be: other commands are being
  // applied. Apply() then finishes that message first, so Apply() may take long.
  bool unfinished();

  // Frees the memory of programs. If commands are being applied, Apply() or Continue() frees it
  // afterwards. If `error` isn't OK, ends the attached connection with `error`.
  void OnSessionClosed(const absl::Status& error) override;

  // Returns whether the next message may be read: false while too many commands wait to run, or too
  // many answers wait to be sent.
  bool MayRead() const;

  // Fills `response` with the next answers, and adds to `ready` those whose elements the caller
  // must append to `response`. With `must_ack`, acknowledges received commands even before the
  // interval that the client requested. If there is nothing to send, or `wire` isn't attached,
  // returns false. `response` then holds at most the position of the session.
  bool NextResponse(const CommandWire* wire, bool must_ack, v1::SessionStreamResponse* response,
                    std::vector<ReadyElements>* ready);

  // Returns whether no answers are still to come, and NextResponse() has returned all that came.
  bool AllAnswered() const;

 private:
  using Answer = std::variant<v1::HandleError, ReadyElements, v1::BarrierDone>;

  // A message, and how much of it has been applied.
  struct Message {
    const v1::SessionStreamRequest* request = nullptr;  // null: no message is unfinished
    int64_t bytes = 0;
    uint64_t stream_number = 0;  // the value of stream_number_ when the message began
    int next_command = 0;
    int next_word = 0;  // of that command, if it is a batch
  };

  // Frees the memory of programs, unless commands are being applied.
  void TryDropPrograms();
  // Applies the rest of a message whose connection has been replaced. Returns its error if the next
  // stream continues the message's stream, because the next stream must then end with this error.
  absl::Status FinishReplaced() ABSL_EXCLUSIVE_LOCKS_REQUIRED(apply_mu_);
  // Begins a message from `wire`.
  absl::Status Begin(const CommandWire* wire, const v1::SessionStreamRequest& request,
                     int64_t message_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(apply_mu_);
  // Applies the next commands of message_. At its end, and after an error, resets message_.
  absl::StatusOr<Progress> ContinueMessage(Clock::time_point deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(apply_mu_);
  absl::StatusOr<Progress> ApplyCommands(Clock::time_point deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(apply_mu_);
  // Returns whether the message's commands are the next ones; false if there are none, or they have
  // been applied before. If earlier commands are missing, returns INVALID_ARGUMENT.
  absl::StatusOr<bool> CheckDue(const v1::SessionStreamRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(apply_mu_);
  absl::Status ApplyCommand(const v1::Command& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(apply_mu_);
  // Returns RESOURCE_EXHAUSTED if the answers take kMaxAnswerBytes or more, or if a limit of host
  // memory has refused an answer that isn't an error. Call it after each command, because one
  // message may request millions of answers.
  absl::Status CheckAnswers() const;
  absl::Status ApplyDefinition(const v1::Definition& definition)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(apply_mu_);
  absl::Status ApplyProgram(const v1::Program& program) ABSL_EXCLUSIVE_LOCKS_REQUIRED(apply_mu_);
  // Applies message_'s next command, a batch. If the deadline passes, sets message_.next_word.
  absl::StatusOr<Progress> ApplyBatch(const v1::Batch& batch, Clock::time_point deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(apply_mu_);
  void ApplyRun(const v1::ProgramRun& run, uint64_t number)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(apply_mu_);
  void ApplySingle(const v1::Command& command, uint64_t number)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(apply_mu_);
  absl::Status ApplyOp(const v1::Op& op, uint64_t number);
  absl::StatusOr<TensorRef> ApplyPromise(const v1::Promise& promise);
  void ApplyFailPromise(const v1::FailPromise& fail, uint64_t number);
  void ApplyGetElements(const v1::GetElements& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(apply_mu_);
  // If the session has no host memory left for the wait, returns RESOURCE_EXHAUSTED.
  absl::Status ApplyBarrier(const v1::Barrier& barrier) ABSL_EXCLUSIVE_LOCKS_REQUIRED(apply_mu_);
  // If many commands have been posted, stops reading until the devices have run them.
  void AwaitPostedCommands() ABSL_EXCLUSIVE_LOCKS_REQUIRED(apply_mu_);

  // Handles a refused op or promise: stores the error under `handle`, and sends it to the client.
  void Refuse(Handle handle, uint64_t number, const absl::Status& error);
  // Does the same for all outputs of an op: the handles from `first` on.
  void RefuseOutputs(Handle first, uint32_t count, uint64_t number, const absl::Status& error);
  // If the tensor fails, sends the error to the client, unless the handle is deleted before an
  // upload has filled the tensor.
  void Watch(const TensorRef& tensor, uint64_t number);

  // Counts an answer to message_ that will come later, unless ResetAnswersLocked() has been called
  // since the message began. Returns the stream number to pass to Deliver().
  uint64_t Expect() ABSL_EXCLUSIVE_LOCKS_REQUIRED(apply_mu_);
  // Queues an answer. If ResetAnswersLocked() has been called since the answer's message began,
  // drops the answer. `expected_by` is the result of Expect().
  void Deliver(uint64_t expected_by, Answer answer);
  // Queues an error for the client. If a limit of host memory is reached, or no connection will
  // send the error, drops it. The handle keeps an error (Tensor::Failed(), Session::KeepRefusal()),
  // unless it is 0 or was already in use.
  void AppendError(Handle handle, uint64_t number, const absl::Status& error);
  // Returns how many of answer_bytes_ are charged to answer_charge_: all but the first
  // Session::kPrepaidAnswerBytes, which were charged when the session opened.
  int64_t ChargedAnswerBytesLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // ChargeAnswerLocked() charges an answer that will be added to answers_. RefundAnswerLocked()
  // returns the charge.
  absl::Status ChargeAnswerLocked(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RefundAnswerLocked(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Drops the answers up to number `answers_received`.
  void DropReceivedAnswersLocked(uint64_t answers_received) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Drops all answers, including those that are still to come.
  void ResetAnswersLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MustAckLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  size_t UnsentLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return answers_.size() - sent_; }
  // Runs Resume() of the attached connection, if any.
  void Notify();

  ServiceContext* const context_;
  const SessionRef session_;

  Mutex apply_mu_ ABSL_ACQUIRED_BEFORE(mu_);  // held while commands are applied
  Message message_ ABSL_GUARDED_BY(apply_mu_);
  PackedOps packed_ ABSL_GUARDED_BY(apply_mu_);
  uint64_t taken_ ABSL_GUARDED_BY(apply_mu_) = 0;              // commands that have taken effect
  int64_t posted_since_await_ ABSL_GUARDED_BY(apply_mu_) = 0;  // since AwaitPostedCommands() waited

  mutable Mutex mu_;
  std::weak_ptr<CommandWire> wire_ ABSL_GUARDED_BY(mu_);
  const CommandWire* owner_ ABSL_GUARDED_BY(mu_) = nullptr;  // wire_, even if it has expired
  bool resumable_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t attempt_ ABSL_GUARDED_BY(mu_) = 0;        // of the last attach
  std::deque<Answer> answers_ ABSL_GUARDED_BY(mu_);  // not yet acknowledged, or not yet sent
  size_t sent_ ABSL_GUARDED_BY(mu_) = 0;             // of answers_, by the attached connection
  size_t unsent_errors_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t answer_bytes_ ABSL_GUARDED_BY(mu_) = 0;        // of answers_
  Charge answer_charge_ ABSL_GUARDED_BY(mu_);            // for answers_
  absl::Status answers_refused_ ABSL_GUARDED_BY(mu_);    // the error, if a limit refused an answer
  uint64_t forgotten_answers_ ABSL_GUARDED_BY(mu_) = 0;  // answers dropped from the front
  int64_t awaited_ ABSL_GUARDED_BY(mu_) = 0;             // answers that are still to come
  // Counts the streams of the session. A resumable stream keeps its number over all its
  // connections. Deliver() drops answers to requests of an earlier stream.
  uint64_t stream_number_ ABSL_GUARDED_BY(mu_) = 0;
  bool catching_up_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t acked_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t received_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t unacked_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint32_t ack_commands_ ABSL_GUARDED_BY(mu_) = 0;  // how often the client wants acknowledgements
  uint32_t ack_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tensord::server
