// The session's command stream: sends queued commands, and receives the answers.
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
// former call ended: waiting threads only wait longer. When the stream ends for good, it closes the
// queue, fails the awaited answers with the reason, and calls `on_end`.
//
//      threads that push commands                      threads that wait for answers
//                 │ Flush                                          │ Await
//                 ▼                                                ▼
//   CommandQueue ──▶ SendPacing ──▶ SendState       ReplyTable ◀── PollerElection ──▶ poller
//                                      │                 ▲                                  │
//                                      ▼                 │ Deliver                          ▼
//                                 StreamCall ────────────┴──────────────────────────── StreamEvents
//                                      ▲
//                                      └── StreamConnection makes it, and replaces it
//
// This class handles each event and connects the parts; their states are in their headers.
// Thread-safe.
class Stream {
 public:
  struct Options {
    std::string address;
    std::string session;
    Credentials credentials;
    // For how long a waiting thread polls before it sleeps.
    absl::Duration spin;
    // For how long the stream tries to reconnect.
    absl::Duration reconnect_timeout;
  };

  // Starts to connect. `stub`, `queue`, `replies` and `counters` must outlive this object. The
  // polling thread calls `on_end`: the stream's thread, or a thread in Await.
  Stream(grpc::GenericStub* stub, Options options, CommandQueue* queue, ReplyTable* replies,
         Counters* counters, std::function<void()> on_end);
  ~Stream() { Stop(); }

  // Call it after each push to the queue. Sends the queued commands if no message is under way.
  // Delays them during a pause (poller_election.h) or an interval (send_pacing.h), unless too many
  // are queued. A thread that calls Await ends the delay. Doesn't block.
  void Flush() {
    if (election_.paused()) {
      if (queue_->num_unsent_commands() >= kUnsentBeforeResume) ResumeBackgroundPolling();
    } else if (!send_state_.held()) {
      if (pacing_.ShouldDelay(queue_->num_unsent_commands())) return;
      Send();
    }
  }

  // Resumes polling by the stream's own thread, and sends commands that were held back. Call it
  // before a thread waits for something other than an answer on this stream.
  void ResumeBackgroundPolling();

  // Blocks until the answer to a GetElements or Barrier that has been pushed has come, and returns
  // it as ReplyTable::Await does.
  absl::StatusOr<v1::Elements> Await(uint64_t reply,
                                     ReplyTable::Clock::time_point* arrival = nullptr);

  // Do the same as StreamConnection's functions of these names.
  bool AwaitConnected() { return connection_.AwaitConnected(); }
  bool connected() const { return connection_.connected(); }

  // Ends the stream at once and joins its thread. Threads in Await return. Once this call has
  // begun, no thread may begin another one.
  void Stop();

 private:
  // If this many commands wait while no thread polls, Flush resumes polling.
  static constexpr int64_t kUnsentBeforeResume = 16;

  void RunInBackground();
  // Wait for one event and handle it. Before, PollForWaiter sends queued commands. Only the elected
  // thread may call them, and it must hold no lock.
  void PollForWaiter();
  void PollInBackground();
  void Handle(StreamEvents::Occurrence occurrence);

  void OnAttachWritten(bool ok);
  void OnMessageWritten(bool ok);
  void OnMessageRead(bool ok);
  void OnCallFinished();
  void DeliverResponse();
  // If the call is attached, records it and sends queued commands.
  void ContinueIfAttached();

  // Sends the next message, if there is one and no write is under way.
  void Send();
  // Does the same for a thread that waits. It must be counted as waiting: if a write is under way,
  // the end of the write then sends the next message.
  void SendQueued();
  // Sends a message and begins to collect the next one. Only the polling thread may call it.
  void SendAndCollect();
  // Releases the right to send. Then half-closes or finishes the call, if that is due.
  void ReleaseSend();
  // Tells a draining server that no more commands come. Otherwise, if commands were still arriving
  // when the server closes the connection, answers could be lost.
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
  // The right to send is held for the message that attaches. Only the polling thread uses it.
  bool attaching_ = true;
  SendPacing pacing_;
  PollerElection election_;
  std::thread thread_;
};

}  // namespace tensord::internal
