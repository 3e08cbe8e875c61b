// A stream's current call, and the calls that replace it when the connection breaks.
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

// Returns what a call's end means for the stream: UNAVAILABLE if another call may succeed,
// otherwise the error that ends the stream. Never OK.
absl::Status ClassifyCloseStatus(const grpc::Status& status, const std::string& address);

// Keeps the stream connected: starts a call, and after it breaks the next one, with growing pauses
// between the attempts, until `reconnect_timeout` after the connection was lost.
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
// The functions for the polling thread (poller_election.h) aren't thread-safe, the others are.
class StreamConnection {
 public:
  struct Options {
    std::string address;  // for errors
    Credentials credentials;
    absl::Duration reconnect_timeout;  // zero: no attempt after the first
  };

  // `stub`, `events` and `counters` must outlive this object.
  StreamConnection(grpc::GenericStub* stub, Options options, StreamEvents* events,
                   Counters* counters);

  // The following are for the polling thread.

  // Replaces the call and starts it.
  void StartCall();
  // The call is attached. Counts a reconnect if it is not the first one that is.
  void SetConnected();
  // The call has finished. If `may_retry` and its status allow another, begins the pause before
  // that and returns OK; otherwise returns the error that ends the stream.
  absl::Status RetryOrFail(bool may_retry);
  // The error of a stream that didn't reconnect in time: the last failure, how long was tried, and
  // what the caller can do.
  absl::Status NotReconnected() const;
  // kReconnectTimedOut has come. Unless the stream is connected again, cancels the attempt or the
  // pause that is under way, whose event ends the stream.
  void HandleReconnectTimeout();
  // No call follows. Threads in AwaitConnected return.
  void End();

  // The current call. The thread that has the right to send (send_state.h) may use it, too.
  StreamCall& call() { return *call_; }

  // Blocks until the stream is connected. Returns false if it has ended.
  bool AwaitConnected();
  // Whether the stream is connected, or makes its first attempt. A connection that broke counts
  // until gRPC has reported it.
  bool connected() const;
  // Cancels the call or the pause before the next; no call follows.
  void Stop();
  // After the last event of the stream has been handled: cancels the timeout.
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
  bool has_connected_ ABSL_GUARDED_BY(mu_) = false;  // at some time
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  Clock::time_point lost_at_ ABSL_GUARDED_BY(mu_);  // when the stream was last connected
  // An alarm must not be destroyed before its event has come: gRPC touches it when it goes off.
  std::unique_ptr<grpc::Alarm> retry_ ABSL_GUARDED_BY(mu_);  // set during a pause
  grpc::Alarm timeout_ ABSL_GUARDED_BY(mu_);
  bool timeout_set_ ABSL_GUARDED_BY(mu_) = false;  // its event is still to come
};

}  // namespace tensord::internal
