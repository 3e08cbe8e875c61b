#include "tensord/server/rpc/auth/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif

namespace tensord::server {
namespace {

// The window after a message: this many times its size, so that an upload is limited by gRPC's flow
// control and doesn't stall here; and the maximum.
constexpr int64_t kWindowPerMessage = 64;
constexpr int64_t kMaxLastingWindow = 32 << 20;
// A message's gRPC and HTTP/2 framing, and what gRPC reads ahead of it.
constexpr int64_t kMessageOverheadBytes = 1 << 20;
// After a call has ended early, the client may still send this much of its requests, which gRPC
// drops. gRPC's flow control allows 4 MiB of a call in flight, and more if it estimates that the
// network holds more, for example because one of the machines is busy.
constexpr int64_t kDroppedBytes = 64 << 20;
constexpr int64_t kUnadmittedDroppedBytes = 8 << 20;
// HTTP/2 and TLS framing of a message: 1/kFramingShare of its bytes, plus kFramingBytes.
constexpr int64_t kFramingShare = 128;
constexpr int64_t kFramingBytes = 40;
// Credit that is added every kInspectInterval, for bytes that belong to no call.
constexpr int64_t kRefillBytes = 512;
// Credit that is added to an unadmitted connection in the same way, for example for health probes.
constexpr int64_t kUnadmittedRefillBytes = 32;
// Bytes of calls that ended before handlers had received their requests: the most that are
// credited at once, and how many more every kInspectInterval.
constexpr int64_t kMaxForgivenBytes = 64 << 20;
constexpr int64_t kForgivenRefillBytes = 1 << 20;
// A deadlock is resolved after this many inspections without credit. Meanwhile, calls of the
// principal's other connections may end, and then the pool has room. Threads of gRPC may also hold
// complete messages that they haven't passed to a queue, because they wait for a core. So the
// server must not conclude sooner that a message is incomplete.
constexpr int kDeadlockInspections = 6;
// DeadlockedLocked() regards a pool with less room than this as full. Each inspection gives each
// connection some credit, which makes room, but not enough to complete a message.
constexpr int64_t kPoolSlackBytes = 64 << 10;
// SO_RCVBUF of an admitted connection, on kernels without SO_BUF_LOCK, where the automatic sizing
// of the buffer can't be re-enabled.
constexpr int kAdmittedReceiveBufferBytes = 8 << 20;
// The token buckets: how many calls each holds, and how many of them it loses in a second. A client
// has at most 1024 calls open, and may cancel all of them at once (kMaxResets).
constexpr double kMaxRefused = 100;
constexpr double kMaxUnadmittedRefused = 50;
constexpr double kRefusedPerSecond = 20;
constexpr double kMaxPublic = 20;
constexpr double kPublicPerSecond = 10;
constexpr double kMaxCancelled = 100;
constexpr double kCancelledPerSecond = 1000;
constexpr double kMaxResets = 1100;
constexpr double kMaxUnadmittedResets = 50;
constexpr double kResetsPerSecond = 20;
// The maximum number of unsent answers to refused or public calls that gRPC holds for a connection.
// Each takes the memory of its call.
constexpr int kMaxUnsentAnswers = 64;

// Undoes the limit on the kernel's buffer that accepting has set.
void EnlargeReceiveBuffer(int fd) {
  // Re-enables the kernel's automatic sizing of the buffer (socket(7), since Linux 5.15).
  const int unlocked = 0;
  if (setsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &unlocked, sizeof(unlocked)) == 0) return;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kAdmittedReceiveBufferBytes,
             sizeof(kAdmittedReceiveBufferBytes));
}

}  // namespace

absl::Status MessageTooLarge(int64_t max_message_bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the request is larger than a message may be, ", max_message_bytes,
                   " bytes (--max-message-bytes); use Write, which streams"));
}

bool Connection::admitted() const {
  MutexLock lock(&mu_);
  return admitted_;
}

bool Connection::has_max_calls() const {
  MutexLock lock(&mu_);
  return calls_.size() >= kMaxOpenCalls;
}

int64_t Connection::HeldBytesLocked() const { return socket_->received_bytes() - credit_bytes_; }

int64_t Connection::MaxWindowLocked() const {
  return kMinWindow + (any_call_ended_early_ ? kDroppedBytes : 0) +
         static_cast<int64_t>(calls_.size()) * (max_message_bytes_ + kMessageOverheadBytes);
}

void Connection::UpdateLocked() {
  const int64_t received = socket_->received_bytes();
  // The credit is at most what has been received, so gRPC never holds more than the window.
  credit_bytes_ = std::clamp<int64_t>(credit_bytes_, 0, received);
  const int64_t dropped = any_call_ended_early_ && !admitted_ ? kUnadmittedDroppedBytes : 0;
  const bool pool_was_full = pool_.full();
  const int64_t limit = ThrottledLocked() ? received : credit_bytes_ + window_bytes_ + dropped;
  socket_->Update(limit, received - credit_bytes_ + handler_bytes_);
  if (pool_was_full && !pool_.full()) stalled_sockets_->Add(0);
}

bool Connection::AddAdmitted(Call* call, int64_t headers_bytes, const ReceivePool& pool,
                             Charges charges) {
  MutexLock lock(&mu_);
  const bool first = !std::exchange(admitted_, true);
  if (first) {
    pool_ = pool;
    charges_ = std::move(charges);
    socket_->ChangePool(pool);
    window_bytes_ = kMinWindow;
    forgiven_bytes_ = kMaxForgivenBytes;
    EnlargeReceiveBuffer(socket_->fd());
  }
  call->admitted = true;
  progressed_ = true;
  calls_.push_back(call);
  credit_bytes_ += headers_bytes;
  UpdateLocked();
  return first;
}

bool Connection::AddRefused(Call* call, bool at_limit) {
  MutexLock lock(&mu_);
  calls_.push_back(call);
  if (at_limit) return true;
  refused_.Add(kRefusedPerSecond);
  return !refused_.Exceeds(admitted_ ? kMaxRefused : kMaxUnadmittedRefused, kRefusedPerSecond);
}

void Connection::ServedAsPublic() {
  MutexLock lock(&mu_);
  refused_.Remove();
  public_.Add(kPublicPerSecond);
  if (ThrottledLocked()) UpdateLocked();
}

void Connection::RefusedCallAnswered(Call* call) {
  MutexLock lock(&mu_);
  if (std::exchange(call->answered, true)) return;
  ++num_unsent_answers_;
  if (ThrottledLocked()) UpdateLocked();
}

bool Connection::CountCancelled(bool has_deadline) {
  MutexLock lock(&mu_);
  cancelled_.Add(kCancelledPerSecond);
  if (ThrottledLocked()) {
    window_bytes_ = std::min(window_bytes_, kUnadmittedWindow);  // until the next message
    UpdateLocked();
  }
  if (has_deadline) return true;
  resets_.Add(kResetsPerSecond);
  return !resets_.Exceeds(admitted_ ? kMaxResets : kMaxUnadmittedResets, kResetsPerSecond);
}

bool Connection::ThrottledLocked() const {
  return num_unsent_answers_ > kMaxUnsentAnswers ||
         cancelled_.Exceeds(kMaxCancelled, kCancelledPerSecond) ||
         public_.Exceeds(kMaxPublic, kPublicPerSecond);
}

void Connection::AddCredit(int64_t bytes, int64_t messages) {
  MutexLock lock(&mu_);
  progressed_ = true;
  credit_bytes_ += bytes + bytes / kFramingShare + messages * kFramingBytes;
  window_bytes_ = std::clamp(kWindowPerMessage * bytes, kMinWindow, kMaxLastingWindow);
  UpdateLocked();
}

void Connection::HoldMessage(Call* call, int64_t bytes) {
  MutexLock lock(&mu_);
  bytes = std::max(bytes, -call->held_bytes);  // the call may have been removed
  call->held_bytes += bytes;
  handler_bytes_ += bytes;
  if (bytes < 0) progressed_ = true;
  UpdateLocked();
}

void Connection::SetState(Call* call, CallState state) {
  call->state.store(state, std::memory_order_relaxed);
  if (state != CallState::kReading) {
    if (!progressed_.load(std::memory_order_relaxed)) progressed_ = true;
  } else if (waits_for_reader_.exchange(false)) {
    stalled_sockets_->Add(id_);
  }
}

void Connection::Remove(Call* call) {
  MutexLock lock(&mu_);
  // Calls end in any order, but mostly soon.
  const auto last = std::find(calls_.rbegin(), calls_.rend(), call);
  if (last == calls_.rend()) return;
  progressed_ = true;
  const auto num_calls = static_cast<int64_t>(calls_.size());
  calls_.erase(std::next(last).base());
  handler_bytes_ -= std::exchange(call->held_bytes, 0);
  if (std::exchange(call->answered, false)) --num_unsent_answers_;
  const bool ended_early = call->state != CallState::kComplete;
  any_call_ended_early_ = any_call_ended_early_ || ended_early;
  if (calls_.empty()) {
    credit_bytes_ = socket_->received_bytes();  // gRPC holds nothing
  } else if (call->admitted && ended_early) {
    // gRPC has dropped what it held of this call. How much that was isn't known, so this assumes an
    // average call.
    const int64_t forgiven =
        std::min(std::max<int64_t>(HeldBytesLocked(), 0) / num_calls, forgiven_bytes_);
    credit_bytes_ += forgiven;
    forgiven_bytes_ -= forgiven;
  }
  UpdateLocked();
}

void Connection::Resume() {
  MutexLock lock(&mu_);
  UpdateLocked();
}

bool Connection::AnyReadingLocked() const {
  return std::any_of(calls_.begin(), calls_.end(),
                     [](const Call* call) { return call->state == CallState::kReading; });
}

bool Connection::AnyBusyLocked() const {
  return std::any_of(calls_.begin(), calls_.end(), [](const Call* call) {
    return call->state == CallState::kAtWork || (call->admitted && call->end == nullptr);
  });
}

bool Connection::BeginRound() {
  MutexLock lock(&mu_);
  if (std::exchange(in_round_, true)) return false;
  progressed_ = false;
  return true;
}

bool Connection::ResolveStall() {
  MutexLock lock(&mu_);
  in_round_ = false;
  if (!admitted_ || !socket_->stalled() || ThrottledLocked()) return false;
  if (progressed_) return true;
  // Without calls, the bytes are the rest of calls that have ended.
  if (!calls_.empty() && !AnyReadingLocked()) {
    waits_for_reader_ = true;
    return AnyReadingLocked();  // a handler may have begun to read meanwhile
  }
  const int64_t held = HeldBytesLocked();
  const int64_t max_window = MaxWindowLocked();
  if (held < max_window) {
    window_bytes_ = std::min(2 * std::max(window_bytes_, held), max_window);
    UpdateLocked();
  }
  return false;
}

bool Connection::WindowFullLocked() const { return HeldBytesLocked() >= MaxWindowLocked(); }

bool Connection::DeadlockedLocked() const {
  if (!admitted_ || !socket_->stalled() || ThrottledLocked()) return false;
  if (WindowFullLocked()) return !AnyBusyLocked();
  return pool_.held != nullptr && pool_.held->room() < kPoolSlackBytes && !calls_.empty() &&
         std::none_of(calls_.begin(), calls_.end(),
                      [](const Call* call) { return call->state == CallState::kAtWork; });
}

template <typename Condition>
bool Connection::EndNewestLocked(const absl::Status& status, const Condition& condition) {
  const auto newest = std::find_if(calls_.rbegin(), calls_.rend(), [&](const Call* call) {
    return call->end != nullptr && condition(*call);
  });
  if (newest == calls_.rend()) return false;
  std::exchange((*newest)->end, nullptr)(status);
  return true;
}

bool Connection::EndNewestReaderLocked(const absl::Status& status) {
  return EndNewestLocked(status,
                         [](const Call& call) { return call.state == CallState::kReading; });
}

bool Connection::EndNewestHolderLocked(const absl::Status& status) {
  const bool ended = EndNewestLocked(status, [](const Call& call) {
    return call.held_bytes > 0 && call.state != CallState::kAtWork;
  });
  return ended || EndNewestReaderLocked(status);
}

bool Connection::ended() const {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  const bool known = getsockopt(socket_->fd(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0;
  // A client that has closed its end may still be owed the effect of what it sent before.
  return !known ||
         (info.tcpi_state != TCP_ESTABLISHED && !(info.tcpi_state == TCP_CLOSE_WAIT && admitted()));
}

Connection::Inspection Connection::Inspect(std::set<BudgetRef>* relieved) {
  if (ended()) return Inspection::kEnded;
  MutexLock lock(&mu_);
  if (DeadlockedLocked() && credit_bytes_ == inspected_credit_) {
    ++deadlocked_inspections_;
  } else {
    deadlocked_inspections_ = 0;
  }
  if (deadlocked_inspections_ >= kDeadlockInspections) {
    if (calls_.empty()) return Inspection::kWindowFull;
    if (WindowFullLocked()) {
      // A message within the limit would be complete.
      EndNewestReaderLocked(MessageTooLarge(max_message_bytes_));
    } else if (!relieved->contains(pool_.held)) {
      const bool ended = EndNewestHolderLocked(absl::ResourceExhaustedError(absl::StrCat(
          "no request of this caller can be completed, because the memory for unfinished requests "
          "is used up; the caller's unfinished requests and waiting uploads hold ",
          pool_.held->used(),
          " bytes; send less at once (--max-request-bytes-per-principal), or, if other callers use "
          "the memory, try again later (--max-request-bytes)")));
      if (ended) relieved->insert(pool_.held);
    }
    deadlocked_inspections_ = 0;
  }
  credit_bytes_ += admitted_ ? kRefillBytes : kUnadmittedRefillBytes;
  if (admitted_) {
    forgiven_bytes_ = std::min(forgiven_bytes_ + kForgivenRefillBytes, kMaxForgivenBytes);
  }
  UpdateLocked();
  inspected_credit_ = credit_bytes_;
  return Inspection::kOpen;
}

}  // namespace tensord::server
