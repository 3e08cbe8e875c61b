#include "tensord/client/internal/stream_connection.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tensord/client/internal/interruption.h"
#include "tensord/client/internal/wire.h"
#include "tensord/common/status_details.h"

namespace tensord::internal {
namespace {

// The pause before the next attempt doubles from the first of these to the second.
constexpr auto kMinPause = std::chrono::milliseconds(10);
constexpr auto kMaxPause = std::chrono::milliseconds(1000);
// Replaces an infinite timeout, which the clocks can't represent.
constexpr absl::Duration kMaxTimeout = absl::Hours(24 * 365 * 50);

constexpr absl::string_view kAdvice =
    "; the session's tensors can't be used any more: make a new Client with Client::Connect";

}  // namespace

absl::Status SessionEndedError(absl::string_view address, absl::string_view reason) {
  // Removes the server's advice for authors of clients.
  absl::ConsumeSuffix(&reason, " (OpenSession makes a new one)");
  return WithErrorInfo(absl::DataLossError(absl::StrCat(
                           "tensord server at ", address,
                           " no longer has the session, and its tensors are gone: ", reason,
                           "; connect again (Client::Connect)")),
                       "SESSION_NOT_FOUND");
}

absl::Status ClassifyCloseStatus(const grpc::Status& status, const std::string& address) {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return absl::FailedPreconditionError(
          absl::StrCat("tensord server at ", address, " has ended the session's stream"));
    case grpc::StatusCode::NOT_FOUND:
      return SessionEndedError(address, status.error_message());
    // gRPC reports a broken connection with one of these codes.
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::INTERNAL:
      return absl::UnavailableError(absl::StrCat("lost the connection to the tensord server at ",
                                                 address, ": ", status.error_message()));
    default:
      return StatusFromGrpc(status, address);
  }
}

StreamConnection::StreamConnection(grpc::GenericStub* stub, Options options, StreamEvents* events,
                                   Counters* counters)
    : options_(std::move(options)),
      stub_(stub),
      events_(events),
      counters_(counters),
      jitter_(std::random_device()()),
      lost_at_(Clock::now()) {}

void StreamConnection::StartCall() {
  MutexLock lock(&mu_);
  retry_.reset();
  call_ = std::make_unique<StreamCall>(stub_, options_.credentials, events_->queue(),
                                       /*reconnects=*/has_connected_);
  call_->Start();
  // Cancel() may have come too late for the pause before this attempt.
  const bool too_late = attempts_ > 0 && TimeLeftLocked() <= Clock::duration::zero();
  if (stopping_ || too_late) call_->Cancel();
}

void StreamConnection::SetConnected() {
  attempts_ = 0;
  last_error_ = absl::OkStatus();
  {
    MutexLock lock(&mu_);
    if (std::exchange(has_connected_, true)) {
      counters_->reconnects.fetch_add(1, std::memory_order_relaxed);
    }
    connected_ = true;
    if (timeout_set_) timeout_.Cancel();
  }
  changed_.SignalAll();
}

absl::Status StreamConnection::RetryOrFail(bool may_retry) {
  // If HandleReconnectTimeout cancelled this attempt, the previous error says more.
  if (call_->status().error_code() != grpc::StatusCode::CANCELLED || last_error_.ok()) {
    last_error_ = ClassifyCloseStatus(call_->status(), options_.address);
  }
  MutexLock lock(&mu_);
  const bool was_connected = std::exchange(connected_, false);
  if (was_connected) lost_at_ = Clock::now();
  if (!absl::IsUnavailable(last_error_)) return last_error_;
  if (!may_retry) return WithSuffix(last_error_, kAdvice);
  if (stopping_ || TimeLeftLocked() <= Clock::duration::zero()) return NotReconnected();
  if (was_connected) {
    Trace(absl::StrCat(last_error_.message(), "; calls wait while the client tries to reconnect, ",
                       "for at most ", absl::FormatDuration(options_.reconnect_timeout)));
  }
  SetTimeoutLocked();
  SetRetryLocked();
  return absl::OkStatus();
}

void StreamConnection::SetRetryLocked() {
  const auto pause =
      std::min<std::chrono::nanoseconds>(kMinPause * (1 << std::min(attempts_, 10)), kMaxPause);
  ++attempts_;
  // The jitter keeps clients that lost the same server from reconnecting at the same time.
  const auto jittered = pause / 2 + pause / 2048 * static_cast<int>(jitter_() % 1024);
  retry_ = std::make_unique<grpc::Alarm>();
  retry_->Set(events_->queue(), std::chrono::system_clock::now() + jittered,
              ToTag(StreamEvent::kRetryDue));
}

StreamConnection::Clock::duration StreamConnection::TimeLeftLocked() const {
  const absl::Duration timeout = std::min(options_.reconnect_timeout, kMaxTimeout);
  return lost_at_ + absl::ToChronoNanoseconds(timeout) - Clock::now();
}

void StreamConnection::SetTimeoutLocked() {
  if (timeout_set_) return;
  timeout_set_ = true;
  timeout_.Set(events_->queue(), std::chrono::system_clock::now() + TimeLeftLocked(),
               ToTag(StreamEvent::kReconnectTimedOut));
}

absl::Status StreamConnection::NotReconnected() const {
  if (options_.reconnect_timeout <= absl::ZeroDuration()) {
    return absl::UnavailableError(
        absl::StrCat(last_error_.message(),
                     "; ConnectOptions::reconnect_timeout allows no reconnection", kAdvice));
  }
  return absl::UnavailableError(absl::StrCat(last_error_.message(), "; tried to reconnect for ",
                                             absl::FormatDuration(options_.reconnect_timeout),
                                             " (ConnectOptions::reconnect_timeout)", kAdvice));
}

void StreamConnection::HandleReconnectTimeout() {
  MutexLock lock(&mu_);
  timeout_set_ = false;
  if (connected_ || ended_ || stopping_) return;
  // SetConnected may have cancelled the timeout, and the connection may have been lost again.
  if (TimeLeftLocked() > Clock::duration::zero()) return SetTimeoutLocked();
  CancelAttemptLocked();
}

void StreamConnection::CancelAttemptLocked() {
  if (retry_ != nullptr) {
    retry_->Cancel();
  } else {
    call_->Cancel();
  }
}

void StreamConnection::Stop() {
  MutexLock lock(&mu_);
  stopping_ = true;
  CancelAttemptLocked();
}

void StreamConnection::CancelTimeout() {
  MutexLock lock(&mu_);
  if (timeout_set_) timeout_.Cancel();
}

void StreamConnection::End() {
  {
    MutexLock lock(&mu_);
    ended_ = true;
  }
  changed_.SignalAll();
}

bool StreamConnection::AwaitConnected() {
  MutexLock lock(&mu_);
  while (!ended_ && !connected_ && !Interruption::Interrupted()) WaitOrCheck(&changed_, &mu_);
  return !ended_ && connected_;
}

bool StreamConnection::connected() const {
  MutexLock lock(&mu_);
  return !ended_ && (connected_ || (!has_connected_ && retry_ == nullptr));
}

}  // namespace tensord::internal
