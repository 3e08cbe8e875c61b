// The session's command stream: what sends, what receives, and who does it.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tensord/client/internal/command_queue.h"
#include "tensord/client/internal/counters.h"
#include "tensord/client/internal/credentials.h"
#include "tensord/client/internal/reply_table.h"
#include "tensord/common/mutex.h"

namespace tensord::internal {

// Sends what comes into `queue`, and brings what the server answers into `replies`. Where the
// connection breaks, another is made, and goes on where the first has ended: whoever waits waits a
// little longer. When the stream ends for good, queue and replies are closed with the reason, and
// `on_end` is called.
//
// One thread at a time polls the connection: one that waits for an answer, where there is one, as
// waking another thread to be woken by it would double the wait; otherwise a thread of the stream's
// own. That one stands back for a moment after an answer, because a program that has waited once
// often does so again. Thread-safe.
class Stream {
 public:
  struct Options {
    std::string address;
    std::string session;
    Credentials credentials;
    // How long a waiting thread looks for its answer without going to sleep.
    absl::Duration spin;
    // How long to try to come back to a server that can't be reached.
    absl::Duration reconnect_timeout;
  };

  // `stub`, `queue`, `replies` and `counters` must outlive this object.
  Stream(grpc::GenericStub* stub, Options options, CommandQueue* queue, ReplyTable* replies,
         Counters* counters, std::function<void()> on_end);
  ~Stream() { Stop(); }

  // Something has been pushed: sends it if the wire is idle. A program that has just waited for an
  // answer is likely to do so again at once: then what it gives goes together with its next
  // question, or a moment later.
  void Flush() {
    if (standing_back_.load(std::memory_order_relaxed)) {
      if (queue_->untaken() >= kUntakenBeforeResume) ResumeBackgroundPolling();
    } else if (!writing_.load(std::memory_order_seq_cst)) {
      if (holding_.load(std::memory_order_relaxed) && queue_->untaken() < kMostHeld) return;
      Send();
    }
  }

  // Resumes polling by the stream's own thread, and sends commands that were held back. Call it
  // before waiting for something other than an answer on this stream.
  void ResumeBackgroundPolling();

  // The answer to a Fetch or Barrier that has been pushed.
  absl::StatusOr<v1::Elements> Await(uint64_t reply);

  // Waits, where the connection is broken, until another stands. False where the stream has ended.
  bool AwaitConnected();
  // Whether one stands now, as far as anybody has noticed, or is being made for the first time.
  bool connected() const;

  // Ends the stream at once and waits for its thread. Nobody may use it during and after that, but
  // for threads in Await, which return.
  void Stop();

 private:
  // The number of commands that may wait behind a write while no thread polls.
  static constexpr int64_t kUntakenBeforeResume = 16;
  // While a program goes on giving commands, messages go out at this distance, or when so many
  // commands have come together: each costs both ends a thread's wake-up.
  static constexpr auto kHold = std::chrono::microseconds(100);
  static constexpr int64_t kMostHeld = 4096;
  static constexpr auto kStandBack = std::chrono::milliseconds(1);

  enum class Event : intptr_t {
    kStarted = 1,
    kAttached,
    kWritten,
    kRead,
    kSaidGoodbye,
    kFinished,
    kRetry,
    kGiveUp
  };
  using Clock = std::chrono::steady_clock;

  // One connection's worth of the stream.
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> wire;
    grpc::ByteBuffer response;
    grpc::Status status;
  };

  void Send();
  void Run();
  void StandBackLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Handles one event; waits for it, for a waiting thread or until what is held is due. The caller
  // has the token, and no lock.
  void PollForWaiter();
  void PollInBackground();
  void SendHeld();
  bool AnyWaits();
  void Handle(Event event, bool ok);
  void Start();
  // The connection is attached to the session, as far as that hasn't been waited for.
  void MaybeConnected();
  void Received();
  // Once the server takes no more in: says that nothing more comes, as what is on its way when the
  // server closes the connection may cost the answers that are on theirs.
  void SayGoodbye();
  void FinishIfOver();
  // The wire is free: does what was put off while it wasn't.
  void Release();
  // The connection is over: begins to wait for the next attempt, or ends the stream.
  void Lost();
  void End(absl::Status reason);
  // The time to come back is over, unless the connection stands by now.
  void GiveUp();
  void SetGiveUpLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What the end of a connection means for the stream; OK where it may be tried again.
  absl::Status Verdict(const grpc::Status& status) const;
  // The error of a stream that didn't reconnect in time: the last one, how long was tried, and what
  // to do.
  absl::Status NotReconnected() const;

  const Options options_;
  grpc::GenericStub* const stub_;
  CommandQueue* const queue_;
  ReplyTable* const replies_;
  Counters* const counters_;
  const std::chrono::nanoseconds spin_;
  const std::function<void()> on_end_;

  grpc::CompletionQueue events_;
  std::unique_ptr<Call> call_;  // replaced by who polls, with mu_ held
  // Owned by who polls.
  bool attaching_ = false;      // the message that attaches is being written
  bool awaits_answer_ = false;  // to that message: it says what the server has received
  int attempts_ = 0;            // since the connection stood
  absl::Status last_error_;
  std::minstd_rand jitter_;

  std::atomic<bool> draining_{false};
  std::atomic<bool> said_goodbye_{false};
  // Somebody writes, or nobody may: not started yet, or over. Whoever sets it owns the wire's other
  // direction, and must look at the rest anew: the connection may be another by then.
  std::atomic<bool> writing_{true};
  std::atomic<bool> over_{false};  // no more writes
  std::atomic<bool> reading_over_{false};
  std::atomic<bool> standing_back_{false};
  std::atomic<bool> holding_{false};  // until held_until_, which the polling thread keeps
  Clock::time_point held_until_;

  mutable Mutex mu_;
  CondVar connected_;
  uint64_t generation_ ABSL_GUARDED_BY(mu_) = 0;  // connections that have stood
  bool connected_now_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // An alarm must not go before its event has come: gRPC touches it when it goes off.
  std::unique_ptr<grpc::Alarm> retry_ ABSL_GUARDED_BY(mu_);  // set while none is tried
  grpc::Alarm give_up_ ABSL_GUARDED_BY(mu_);
  bool give_up_set_ ABSL_GUARDED_BY(mu_) = false;   // its event is to come
  Clock::time_point lost_at_ ABSL_GUARDED_BY(mu_);  // when the connection last stood
  CondVar changed_;                                 // for the stream's own thread
  bool polled_ ABSL_GUARDED_BY(mu_) = false;        // somebody has the token
  bool ended_ ABSL_GUARDED_BY(mu_) = false;         // no event will come any more
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;            // threads in Await
  bool dozing_ ABSL_GUARDED_BY(mu_) = false;        // the stream's own thread waits to be told
  Clock::time_point stand_back_until_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace tensord::internal
