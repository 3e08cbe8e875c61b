// Marks in a session's command stream: barriers that the caller awaits later.
#pragma once

#include <chrono>
#include <cstdint>

#include "absl/status/statusor.h"
#include "tensord/client/internal/session.h"

namespace tensord::internal {

// Sends a mark, and returns its number. The server answers it when everything that was sent before
// has run. Waits if the command queue is full. Each 16384th call of a session also waits until
// everything that was sent before has run. If the session has ended, returns the reason. If the
// calling thread is interrupted while it waits, returns CANCELLED. The caller ends each mark with
// AwaitMark or ForgetMark. Thread-safe.
absl::StatusOr<uint64_t> SendMark(Session& session);
// Returns whether AwaitMark would return at once.
bool MarkPassed(Session& session, uint64_t mark);
// Blocks until the answer has come, and returns the time at which it came. If the session has
// ended, returns the reason. If the calling thread is interrupted, returns CANCELLED.
absl::StatusOr<std::chrono::steady_clock::time_point> AwaitMark(Session& session, uint64_t mark);
void ForgetMark(Session& session, uint64_t mark);

}  // namespace tensord::internal
