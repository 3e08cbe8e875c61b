// What comes and goes by a session's stream, whichever connection carries it at the time.
#pragma once

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

// A connection, as the commands know it.
class CommandWire {
 public:
  // Writes what there is to say, and reads again if commands may be read. Thread-safe; the caller
  // holds no lock.
  virtual void Resume() = 0;
  // Ends this stream, because another one of the session has taken its place. Thread-safe; the
  // caller holds no lock.
  virtual void Supersede() = 0;

 protected:
  ~CommandWire() = default;
};

// Takes commands in, in their order and each once, and keeps the answers until they are sent or,
// where the stream is resumable, until the client has them. Lives as long as its session: a
// connection that breaks leaves everything here for the next one. Thread-safe.
class SessionCommands final : public StreamState,
                              public std::enable_shared_from_this<SessionCommands> {
 public:
  // A Fetch whose tensor is ready, or has failed.
  struct ReadyElements {
    uint64_t request_id;
    TensorRef tensor;
    absl::Status status;
  };

  // The commands of the session, made where there are none yet.
  static absl::StatusOr<std::shared_ptr<SessionCommands>> Of(ServiceContext* context,
                                                             const SessionRef& session);

  SessionCommands(ServiceContext* context, SessionRef session);

  // Makes `wire` the one that carries the commands; FAILED_PRECONDITION where there is one already
  // and `attach` isn't resumable, ABORTED where it is late.
  // Of a resumable stream the client has the answers up to `answers_received`.
  absl::Status Attach(const std::shared_ptr<CommandWire>& wire, const v1::Attach& attach,
                      uint64_t answers_received);
  // No effect where another has taken its place.
  void Detach(const CommandWire* wire);

  // Takes in what a message of this wire carries. An error ends the stream: ABORTED where another
  // wire has taken its place.
  absl::Status Take(const CommandWire* wire, const v1::SessionStreamRequest& request,
                    int64_t message_bytes);

  // Whether the next message may be read: false while too much waits to run or to be sent.
  bool MayTake() const;

  // Fills in what there is to say; `must_ack`: also that commands were received, whenever any were.
  // `fetched` are to be put in by the caller. False where there is nothing, and `response` says no
  // more than how far the session is, or where the wire isn't the session's.
  bool NextResponse(const CommandWire* wire, bool must_ack, v1::SessionStreamResponse* response,
                    std::vector<ReadyElements>* fetched);

  // Whether all that was asked has been answered, as far as a wire can.
  bool AllAnswered() const;

 private:
  using Answer = std::variant<v1::HandleError, ReadyElements, v1::BarrierDone>;

  absl::Status TakeCommands(const v1::SessionStreamRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(take_mu_);
  // Whether the message's commands are due; false where they have been taken in.
  absl::StatusOr<bool> CheckDue(const v1::SessionStreamRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(take_mu_);
  absl::Status TakeCommand(const v1::Command& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(take_mu_);
  // RESOURCE_EXHAUSTED where no more answers may be kept: one message may ask for millions.
  absl::Status CheckAnswers() const;
  absl::Status TakeDefinition(const v1::Definition& definition)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(take_mu_);
  absl::Status TakeProgram(const v1::Program& program) ABSL_EXCLUSIVE_LOCKS_REQUIRED(take_mu_);
  absl::Status TakeBatch(const v1::Batch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(take_mu_);
  void TakeRun(const v1::ProgramRun& run, uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(take_mu_);
  void TakeSingle(const v1::Command& command, uint64_t number)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(take_mu_);
  absl::Status TakeOp(const v1::Op& op, uint64_t number);
  absl::StatusOr<TensorRef> TakePromise(const v1::Promise& promise);
  void TakeFailPromise(const v1::FailPromise& fail, uint64_t number);
  void TakeGetElements(const v1::GetElements& command);
  void TakeBarrier(const v1::Barrier& barrier);
  // Lets the devices catch up where many commands have been posted.
  void CatchUp() ABSL_EXCLUSIVE_LOCKS_REQUIRED(take_mu_);

  // The op or promise of `handle` was refused: the error sticks to the handle.
  void Refuse(Handle handle, uint64_t number, const absl::Status& error);
  // Tells the client when a promised tensor fails.
  void Watch(const TensorRef& tensor, uint64_t number);

  // An answer is to come; the number is for Deliver.
  uint64_t Expect();
  void Deliver(uint64_t expected_by, Answer answer);
  void AppendError(Handle handle, uint64_t number, const absl::Status& error);
  int64_t AnswerBytesLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetLocked(uint64_t answers_received) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // No answer asked for so far is wanted any more.
  void StartAnewLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MustAckLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  size_t UnsentLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return answers_.size() - sent_; }
  void Notify();

  ServiceContext* const context_;
  const SessionRef session_;

  // Held by whoever takes a message in.
  Mutex take_mu_;
  PackedOps packed_ ABSL_GUARDED_BY(take_mu_);
  uint64_t taken_ ABSL_GUARDED_BY(take_mu_) = 0;        // commands that have taken effect
  int64_t since_marker_ ABSL_GUARDED_BY(take_mu_) = 0;  // posted since the lanes last caught up

  mutable Mutex mu_;  // after take_mu_
  std::weak_ptr<CommandWire> wire_ ABSL_GUARDED_BY(mu_);
  const CommandWire* owner_ ABSL_GUARDED_BY(mu_) = nullptr;  // what wire_ is, or was
  bool resumable_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t attempt_ ABSL_GUARDED_BY(mu_) = 0;        // of the last that attached
  std::deque<Answer> answers_ ABSL_GUARDED_BY(mu_);  // those not forgotten yet
  size_t sent_ ABSL_GUARDED_BY(mu_) = 0;             // of them, by this wire
  size_t unsent_errors_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t error_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // texts of errors in answers_
  uint64_t forgotten_ ABSL_GUARDED_BY(mu_) = 0;   // answers before those
  int64_t awaited_ ABSL_GUARDED_BY(mu_) = 0;      // answers that are to come
  // Streams so far, resumable ones that went on counting as one: who asked on another is gone.
  uint64_t stream_number_ ABSL_GUARDED_BY(mu_) = 0;
  bool catching_up_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t acked_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t received_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t unacked_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint32_t ack_commands_ ABSL_GUARDED_BY(mu_) = 0;  // as the client asked for them
  uint32_t ack_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tensord::server
