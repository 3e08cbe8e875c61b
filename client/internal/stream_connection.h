// Holds a stream's current call, and replaces it when the connection breaks.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/generic/generic_stub.h>

#include <chrono>
#include <memory>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tensord/client/internal/counters.h"
#include "tensord/client/internal/credentials.h"
#include "tensord/client/internal/stream_call.h"
#include "tensord/client/internal/stream_events.h"
#include "tensord/common/util/mutex.h"

namespace tensord::internal {

// Returns DATA_LOSS (SESSION_NOT_FOUND): the server has ended the session, for the given reason.
absl::Status SessionEndedError(absl::string_view address, absl::string_view reason);

// Converts the final status of a call. Returns UNAVAILABLE if another call may succeed, otherwise
// the error that ends the stream. Never returns OK.
absl::Status ClassifyCloseStatus(const grpc::Status& status, const std::string& address);

// Keeps the stream connected. When a call breaks, starts another one, with growing pauses between
// the attempts, until `reconnect_timeout` after the connection was lost.
//
//                        SetConnected
//      connecting ───────────────────────▶ connected
//        ▲     │                              │
//        │     │ RetryOrFail                  │ RetryOrFail
//  kRetryDue:  ▼                              │
//  StartCall  pausing ◀───────────────────────┘
//        │     │
//        └─────┤ kReconnectTimedOut, Stop, or a call's end that allows no retry
//              ▼
//            ended (End)
//
// The functions for the polling thread (poller_election.h) aren't thread-safe. The others are.
class StreamConnection {
 public:
  struct Options {
    std::string address;  // for errors
    Credentials credentials;
    absl::Duration reconnect_timeout;  // zero or negative: no attempt after the first
  };

  // `stub`, `events` and `counters` must outlive this object.
  StreamConnection(grpc::GenericStub* stub, Options options, StreamEvents* events,
                   Counters* counters);

  // Only the polling thread may call the following functions.

  // Replaces the call and starts it.
  void StartCall();
  // Records that the call is attached. Unless it is the first one, counts a reconnect.
  void SetConnected();
  // Handles the end of the call. If `may_retry` and the call's status allow another call, begins
  // the pause before that call and returns OK. Otherwise returns the error that ends the stream.
  absl::Status RetryOrFail(bool may_retry);
  // Returns the error of a stream that didn't reconnect in time: the last failure, the duration of
  // the attempts, and what the caller can do.
  absl::Status NotReconnected() const;
  // Handles kReconnectTimedOut. Unless the stream is connected, cancels the current attempt or
  // pause. Its event then ends the stream.
  void HandleReconnectTimeout();
  // Records that no call follows. Threads in AwaitConnected return.
  void End();

  // The current call. The thread that has the right to send (send_state.h) may use it, too.
  StreamCall& call() { return *call_; }

  // Blocks until the stream is connected. Returns false if it has ended, or if the calling thread
  // is interrupted (interruption.h).
  bool AwaitConnected();
  // Returns whether the stream is connected, or makes its first attempt. A broken connection counts
  // as connected until gRPC has reported it.
  bool connected() const;
  // Cancels the current call or pause. No call follows.
  void Stop();
  // Cancels the reconnect timeout. Call it after the stream has handled its last event.
  void CancelTimeout();

 private:
  using Clock = StreamEvents::Clock;

  Clock::duration TimeLeftLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetRetryLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetTimeoutLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CancelAttemptLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  grpc::GenericStub* const stub_;
  StreamEvents* const events_;
  Counters* const counters_;

  std::unique_ptr<StreamCall> call_;  // the polling thread replaces it, with mu_ held
  int attempts_ = 0;                  // since the stream was connected
  absl::Status last_error_;
  std::minstd_rand jitter_;

  mutable Mutex mu_;
  CondVar changed_;
  bool connected_ ABSL_GUARDED_BY(mu_) = false;
  bool has_connected_ ABSL_GUARDED_BY(mu_) = false;  // has been connected at least once
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  Clock::time_point lost_at_ ABSL_GUARDED_BY(mu_);  // when the stream was last connected
  // An alarm must not be destroyed before its event has come: gRPC uses it when it expires.
  std::unique_ptr<grpc::Alarm> retry_ ABSL_GUARDED_BY(mu_);  // set during a pause
  grpc::Alarm timeout_ ABSL_GUARDED_BY(mu_);
  bool timeout_set_ ABSL_GUARDED_BY(mu_) = false;  // the event of timeout_ hasn't come
};

}  // namespace tensord::internal
