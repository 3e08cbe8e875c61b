// One direction of a proxied connection.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tensord::proxy {

using Clock = std::chrono::steady_clock;

// The settings of one direction, for all connections. They may change at any time.
struct DirectionSettings {
  std::chrono::microseconds delay{0};
  int64_t bytes_per_second = 0;  // of each connection; 0: no limit
  bool held = false;             // bytes stay in the proxy
  bool discarding = false;       // bytes that arrive are discarded, and so is the end
};

// Copies bytes from one socket to another. Both must be non-blocking; the pipe doesn't own them. If
// the buffer is full, the pipe doesn't read, so the sender blocks. When `from` has ended, the pipe
// ends `to` after the buffered bytes; the other direction continues. Not thread-safe.
class Pipe {
 public:
  Pipe(int from, int to, const DirectionSettings* settings, int64_t max_buffered_bytes)
      : from_(from), to_(to), settings_(settings), max_buffered_bytes_(max_buffered_bytes) {}

  // epoll reports that `from` may be readable, or that `to` may be writable.
  void SetReadable() { readable_ = true; }
  void SetWritable() { writable_ = true; }

  enum class Step { kNothing, kDone, kBroken };
  // Reads once, if `from` is readable and the buffer has room. `bytes` receives the bytes that were
  // read; it is valid until the next call.
  Step Read(Clock::time_point now, absl::string_view* bytes);
  // Writes once, if bytes are due and `to` is writable. `bytes` receives the bytes that were
  // written; it is valid until the next call.
  Step Write(Clock::time_point now, absl::string_view* bytes);

  // Removes the last `bytes` of the bytes that the last Read() returned, and discards all bytes
  // that arrive later. With `reset`, Write() returns kBroken after the buffered bytes.
  void DiscardRest(size_t bytes, bool reset);

  // Returns when Write() can continue, if this depends on time only.
  std::optional<Clock::time_point> NextDue() const;
  int64_t buffered_bytes() const { return buffered_bytes_; }
  // Returns whether all bytes and the end have been written.
  bool finished() const { return finished_; }

 private:
  struct Chunk {
    std::string bytes;   // empty: the end of the bytes
    bool reset = false;  // whether the end is a reset
    Clock::time_point due;
  };

  size_t ReadSize() const;
  void Append(absl::string_view bytes, Clock::time_point now);

  const int from_;
  const int to_;
  const DirectionSettings* const settings_;
  const int64_t max_buffered_bytes_;

  bool readable_ = false;
  bool writable_ = false;
  bool ended_ = false;  // `from` has ended
  bool discards_rest_ = false;
  bool finished_ = false;
  std::deque<Chunk> chunks_;
  size_t written_ = 0;  // bytes of the first chunk that have been written
  int64_t buffered_bytes_ = 0;
  Clock::time_point line_free_;  // with a rate limit: when the next byte may be sent
  std::string last_;             // the bytes that the last Read() or Write() returned
};

}  // namespace tensord::proxy
