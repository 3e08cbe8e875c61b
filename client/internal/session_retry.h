// Repeats calls whose connection broke.
#pragma once

#include <grpcpp/support/status.h>

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tensord/client/internal/connection.h"
#include "tensord/client/internal/interruption.h"
#include "tensord/client/internal/session.h"

namespace tensord::internal {

// The limits of one call's attempts. The pause between two attempts grows up to kMaxRetryPause,
// because gRPC may still assign calls to a connection that it has found to be broken.
inline constexpr int kMaxAttempts = 100;
inline constexpr absl::Duration kMaxRetryPause = absl::Milliseconds(100);

// Returns whether a call failed because its connection broke. gRPC reports some broken connections
// as UNKNOWN.
inline bool IsBroken(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::UNKNOWN;
}

// Sleeps before attempt number `attempt`, counted from 0.
inline void PauseBefore(int attempt) {
  if (attempt > 1) absl::SleepFor(std::min(absl::Milliseconds(5) * (attempt - 1), kMaxRetryPause));
}

template <typename Call>
absl::Status Session::CallWithRetry(Call call) {
  grpc::Status status;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    PauseBefore(attempt);
    CallRegistry::Call registered(&connection_->calls);
    const Interruption::CallScope interruptible(registered.context());
    // Gives gRPC the time to replace a broken connection.
    registered.context()->set_wait_for_ready(attempt > 0);
    status = call(&registered);
    if (!AwaitReconnect(status)) break;
  }
  return Outcome(status);
}

}  // namespace tensord::internal
