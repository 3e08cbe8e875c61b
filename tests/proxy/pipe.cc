#include "tensord/tests/proxy/pipe.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace tensord::proxy {
namespace {

constexpr int64_t kReadBytes = 64 * 1024;
// With a rate limit, bytes are read in pieces that take 10 ms, so that the rate is steady.
constexpr int64_t kPiecesPerSecond = 100;
constexpr int64_t kMinPieceBytes = 512;

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK; }

// Calls `call` again as long as a signal interrupts it.
template <typename Call>
ssize_t Retry(Call call) {
  ssize_t result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

}  // namespace

size_t Pipe::ReadSize() const {
  if (settings_->bytes_per_second == 0) return kReadBytes;
  return std::clamp(settings_->bytes_per_second / kPiecesPerSecond, kMinPieceBytes, kReadBytes);
}

void Pipe::Append(absl::string_view bytes, Clock::time_point now) {
  Clock::time_point sent = now;
  if (settings_->bytes_per_second > 0) {
    const std::chrono::duration<double> on_the_line(
        static_cast<double>(bytes.size()) / static_cast<double>(settings_->bytes_per_second));
    line_free_ =
        std::max(line_free_, now) + std::chrono::duration_cast<Clock::duration>(on_the_line);
    sent = line_free_;
  }
  Clock::time_point due = sent + settings_->delay;
  // Keeps the order of the bytes even if the delay has become shorter.
  if (!chunks_.empty()) due = std::max(due, chunks_.back().due);
  buffered_bytes_ += static_cast<int64_t>(bytes.size());
  chunks_.push_back({.bytes = std::string(bytes), .due = due});
}

void Pipe::DiscardRest(size_t bytes, bool reset) {
  if (bytes > 0 && !settings_->discarding && !discards_rest_) {
    std::string& last = chunks_.back().bytes;
    last.resize(last.size() - bytes);
    buffered_bytes_ -= static_cast<int64_t>(bytes);
    if (last.empty()) chunks_.pop_back();
  }
  discards_rest_ = true;
  if (reset) chunks_.push_back({.reset = true, .due = Clock::time_point()});
}

Pipe::Step Pipe::Read(Clock::time_point now, absl::string_view* bytes) {
  *bytes = {};
  if (!readable_ || ended_ || buffered_bytes_ >= max_buffered_bytes_) return Step::kNothing;
  const bool discard = settings_->discarding || discards_rest_;
  last_.resize(ReadSize());
  const ssize_t got = Retry([&] { return recv(from_, last_.data(), last_.size(), 0); });
  if (got < 0) {
    readable_ = false;
    return WouldBlock() ? Step::kNothing : Step::kBroken;
  }
  if (got == 0) {
    ended_ = true;
    if (!discard) Append({}, now);
    return Step::kDone;
  }
  *bytes = absl::string_view(last_.data(), got);
  if (!discard) Append(*bytes, now);
  return Step::kDone;
}

Pipe::Step Pipe::Write(Clock::time_point now, absl::string_view* bytes) {
  *bytes = {};
  const bool something = !chunks_.empty() && chunks_.front().due <= now;
  if (!something || !writable_ || settings_->held) return Step::kNothing;
  Chunk& chunk = chunks_.front();
  if (chunk.reset) return Step::kBroken;
  if (chunk.bytes.empty()) {
    chunks_.pop_front();
    finished_ = true;
    shutdown(to_, SHUT_WR);  // fails harmlessly if the peer has disconnected
    return Step::kDone;
  }
  const ssize_t put = Retry([&] {
    return send(to_, chunk.bytes.data() + written_, chunk.bytes.size() - written_, MSG_NOSIGNAL);
  });
  if (put < 0) {
    writable_ = false;
    return WouldBlock() ? Step::kNothing : Step::kBroken;
  }
  last_.assign(chunk.bytes, written_, put);
  *bytes = last_;
  written_ += put;
  buffered_bytes_ -= put;
  if (written_ == chunk.bytes.size()) {
    chunks_.pop_front();
    written_ = 0;
  }
  return Step::kDone;
}

std::optional<Clock::time_point> Pipe::NextDue() const {
  if (chunks_.empty() || !writable_ || settings_->held) return std::nullopt;
  return chunks_.front().due;
}

}  // namespace tensord::proxy
