// The session's command stream: sends what is queued, and receives the answers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tensord/client/internal/command_queue.h"
#include "tensord/client/internal/counters.h"
#include "tensord/client/internal/credentials.h"
#include "tensord/client/internal/poller_election.h"
#include "tensord/client/internal/reply_table.h"
#include "tensord/client/internal/send_pacing.h"
#include "tensord/client/internal/send_state.h"
#include "tensord/client/internal/stream_connection.h"
#include "tensord/client/internal/stream_events.h"

namespace tensord::internal {

// Sends the messages of a CommandQueue, and delivers the server's answers to a ReplyTable, over one
// gRPC call at a time. If the connection breaks, the stream reconnects and continues where the
// former call ended: waiting threads only wait longer. When the stream ends for good, it closes
// queue and replies with the reason and calls `on_end`.
//
//      threads that give commands                      threads that wait for answers
//                 │ Flush                                          │ Await
//                 ▼                                                ▼
//   CommandQueue ──▶ SendPacing ──▶ SendState       ReplyTable ◀── PollerElection ──▶ polling
//   thread
//                                      │                 ▲                                  │
//                                      ▼                 │ Deliver                          ▼
//                                 StreamCall ────────────┴──────────────────────────── StreamEvents
//                                      ▲
//                                      └── StreamConnection makes it, and makes it anew
//
// This class handles each event and connects the parts; their states are in their headers.
// Thread-safe.
class Stream {
 public:
  struct Options {
    std::string address;
    std::string session;
    Credentials credentials;
    // For how long a waiting thread looks for its answer before it sleeps.
    absl::Duration spin;
    // For how long the stream tries to reconnect.
    absl::Duration reconnect_timeout;
  };

  // Starts to connect. `stub`, `queue`, `replies` and `counters` must outlive this object.
  // `on_end` runs on a thread of the stream or in Await.
  Stream(grpc::GenericStub* stub, Options options, CommandQueue* queue, ReplyTable* replies,
         Counters* counters, std::function<void()> on_end);
  ~Stream() { Stop(); }

  // Call it after each push to the queue. Sends the command if no message is under way. A program
  // that has just waited for an answer is likely to wait again at once: then the command is sent
  // with its next question, or a moment later. Doesn't block.
  void Flush() {
    if (election_.paused()) {
      if (queue_->untaken() >= kUntakenBeforeResume) ResumeBackgroundPolling();
    } else if (!send_state_.held()) {
      if (pacing_.Holds(queue_->untaken())) return;
      Send();
    }
  }

  // Resumes polling by the stream's own thread, and sends commands that were held back. Call it
  // before waiting for something other than an answer on this stream.
  void ResumeBackgroundPolling();

  // Blocks until the answer to a Fetch or Barrier that has been pushed has come, and returns it as
  // ReplyTable::Await does.
  absl::StatusOr<v1::Elements> Await(uint64_t reply);

  // As StreamConnection's.
  bool AwaitConnected() { return connection_.AwaitConnected(); }
  bool connected() const { return connection_.connected(); }

  // Ends the stream at once and joins its thread. During and after that only threads that are
  // already in Await may use it; they return.
  void Stop();

 private:
  // The number of commands that may wait behind a write while no thread polls.
  static constexpr int64_t kUntakenBeforeResume = 16;

  void RunInBackground();
  // Handles one event, which it waits for. Only for the elected thread, without a lock.
  void PollForWaiter();
  void PollInBackground();
  void Handle(StreamEvents::Occurrence occurrence);

  void OnAttachWritten(bool ok);
  void OnMessageWritten(bool ok);
  void OnMessageRead(bool ok);
  void OnCallFinished();
  void DeliverResponse();
  // If the call is attached, reports it and sends what is queued.
  void ContinueIfAttached();

  // Sends the next message, if there is one and no other is under way.
  void Send();
  // The polling thread's: sends a message and begins to collect the next.
  void SendAndCollect();
  // The right to send is given back: does what was put off until now.
  void ReleaseSend();
  // Tells a draining server that no more commands come. Otherwise what is on its way when the
  // server closes the connection could cost the answers that are on theirs.
  void HalfClose();
  void FinishIfReadsClosed();
  void End(absl::Status reason);

  const std::string session_;
  CommandQueue* const queue_;
  ReplyTable* const replies_;
  const std::function<void()> on_end_;

  StreamEvents events_;
  StreamConnection connection_;
  SendState send_state_;
  SendPacing pacing_;
  PollerElection election_;
  std::thread thread_;
};

}  // namespace tensord::internal
