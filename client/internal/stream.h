// The session's command stream: what sends, what receives, and who does it.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tensord/client/internal/command_queue.h"
#include "tensord/client/internal/credentials.h"
#include "tensord/client/internal/reply_table.h"
#include "tensord/common/mutex.h"

namespace tensord::internal {

// Sends what comes into `queue`, and brings what the server answers into `replies`. When the stream
// ends, for whatever reason, both are closed with it and `on_end` is called.
//
// One thread at a time polls the connection: one that waits for an answer, where there is one, as
// waking another thread to be woken by it would double the wait; otherwise a thread of the stream's
// own. That one stands back for a moment after an answer, because a program that has waited once
// often does so again. Thread-safe.
class Stream {
 public:
  // `stub`, `queue` and `replies` must outlive this object. `spin`: how long a waiting thread looks
  // for its answer without going to sleep.
  Stream(grpc::GenericStub* stub, std::string address, const Credentials& credentials,
         CommandQueue* queue, ReplyTable* replies, absl::Duration spin,
         std::function<void()> on_end);
  ~Stream() { Stop(); }

  // Something has been pushed: sends it if the wire is idle. A program that has just waited for an
  // answer is likely to do so again at once: then what it gives goes together with its next
  // question, or a moment later.
  void Flush() {
    if (standing_back_.load(std::memory_order_relaxed)) {
      if (queue_->untaken() >= kUntakenBeforeHelp) Help();
    } else if (!writing_.load(std::memory_order_seq_cst)) {
      if (holding_.load(std::memory_order_relaxed) && queue_->untaken() < kMostHeld) return;
      Send();
    }
  }

  // The stream's own thread is to poll now: for who waits for something else than an answer on it.
  void Help();

  // The answer to a Fetch or Barrier that has been pushed.
  absl::StatusOr<v1::Fetched> Await(uint64_t reply);

  // Ends the stream at once and waits for its thread. Nobody may use it during and after that, but
  // for threads in Await, which return.
  void Stop();

 private:
  // Commands that may pile up behind a write while nobody polls.
  static constexpr int64_t kUntakenBeforeHelp = 16;
  // While a program goes on giving commands, messages go out at this distance, or when so many
  // commands have come together: each costs both ends a thread's wake-up.
  static constexpr auto kHold = std::chrono::microseconds(100);
  static constexpr int64_t kMostHeld = 4096;
  static constexpr auto kStandBack = std::chrono::milliseconds(1);

  enum class Event : intptr_t { kStarted = 1, kWritten, kRead, kFinished };
  using Clock = std::chrono::steady_clock;

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
  void Received();
  void FinishIfOver();
  void End();
  absl::Status EndOfStream(const grpc::Status& status) const;

  const std::string address_;
  CommandQueue* const queue_;
  ReplyTable* const replies_;
  const std::chrono::nanoseconds spin_;
  const std::function<void()> on_end_;

  grpc::ClientContext context_;
  grpc::CompletionQueue events_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  // Owned by who polls.
  grpc::ByteBuffer response_;
  grpc::Status status_;

  std::atomic<bool> writing_{true};  // or not started yet, or over
  std::atomic<bool> over_{false};    // no more writes
  std::atomic<bool> reading_over_{false};
  std::atomic<bool> standing_back_{false};
  std::atomic<bool> holding_{false};  // until held_until_, which the polling thread keeps
  Clock::time_point held_until_;

  Mutex mu_;
  CondVar changed_;                           // for the stream's own thread
  bool polled_ ABSL_GUARDED_BY(mu_) = false;  // somebody has the token
  bool ended_ ABSL_GUARDED_BY(mu_) = false;   // no event will come any more
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;      // threads in Await
  bool dozing_ ABSL_GUARDED_BY(mu_) = false;  // the stream's own thread waits to be told
  Clock::time_point stand_back_until_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace tensord::internal
