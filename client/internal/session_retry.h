// Asking a server again where the connection broke under the question.
#pragma once

#include <grpcpp/support/status.h>

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tensord/client/internal/connection.h"
#include "tensord/client/internal/session.h"

namespace tensord::internal {

// Of one question: each over another connection, or after a pause that grows to this, as gRPC goes
// on for a moment giving calls to a connection that it has found to be dead.
inline constexpr int kMostAttempts = 100;
inline constexpr absl::Duration kLongestPause = absl::Milliseconds(100);

// UNKNOWN is what gRPC makes of some ways in which a connection breaks.
inline bool IsBroken(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::UNKNOWN;
}

// Before an attempt, the first being 0.
inline void PauseBefore(int attempt) {
  if (attempt > 1) absl::SleepFor(std::min(absl::Milliseconds(5) * (attempt - 1), kLongestPause));
}

template <typename Ask>
absl::Status Session::Insist(Ask ask) {
  grpc::Status status;
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    PauseBefore(attempt);
    CallRegistry::Call call(&connection_->calls);
    // A connection that has broken is given the time to be made anew.
    call.context()->set_wait_for_ready(attempt > 0);
    status = ask(&call);
    if (!Recovered(status)) break;
  }
  return Outcome(status);
}

}  // namespace tensord::internal
