// Logs each session that begins or ends, and each caller that the server refuses.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/log.h"
#include "tensord/server/session/session.h"

namespace tensord::server {

// Text that clients influence (names, addresses, reasons) is escaped and truncated, so that a
// client can't forge a line. Rate limit: a burst of kMaxAtOnce lines, refilled at kLinesPerSecond.
// If lines were dropped, the next line says how many. Thread-safe.
class SessionLog {
 public:
  static constexpr int kMaxAtOnce = 100;
  static constexpr int kLinesPerSecond = 20;

  // Calls `write`, which must not block, with each line's text.
  explicit SessionLog(std::function<void(absl::string_view)> write = &LogLine,
                      LeaseClock clock = &std::chrono::steady_clock::now);

  void Opened(const Session& session);
  // Logs that a session has ended. `how` is "closed", "closed by an administrator", "closed because
  // it was idle for too long", "expired" or "ended with the server".
  void Ended(const Session& session, absl::string_view how, int64_t tensors_freed);
  // Logs that the server refused a call of `caller`, or refused to open a session for it.
  void Refused(absl::string_view caller, const absl::Status& why);

 private:
  void Write(const std::string& text);

  const std::function<void(absl::string_view)> write_;
  const LeaseClock clock_;
  Mutex mu_;
  double allowed_ ABSL_GUARDED_BY(mu_) = kMaxAtOnce;  // lines, as of counted_at_
  std::chrono::steady_clock::time_point counted_at_ ABSL_GUARDED_BY(mu_);
  int64_t left_out_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tensord::server
