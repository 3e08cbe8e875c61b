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

// What is done to all connections in one direction. May change at any time.
struct Treatment {
  std::chrono::microseconds delay{0};  // added
  int64_t bytes_per_second = 0;        // of each connection; 0: no limit
  bool held = false;                   // nothing is passed on for now; it waits its turn
  bool swallowed = false;              // what comes in is thrown away, the end of it as well
};

// Carries bytes from one socket to another, both non-blocking and not owned. What is under way is
// bounded: past that the sender isn't read from, and feels it. The end of what `from` sends is
// passed on in its turn, while the other direction goes on. Used by one thread.
class Pipe {
 public:
  Pipe(int from, int to, const Treatment* treatment, int64_t max_buffered_bytes)
      : from_(from), to_(to), treatment_(treatment), max_buffered_bytes_(max_buffered_bytes) {}

  // epoll has said that `from` may have something, or that `to` may have room.
  void SetReadable() { readable_ = true; }
  void SetWritable() { writable_ = true; }

  enum class Step { kNothing, kDone, kBroken };
  // Reads once where there is something and room for it. `bytes` is what has come, until the next
  // call.
  Step Read(Clock::time_point now, absl::string_view* bytes);
  // Writes once where something is due and there is room. `bytes` is what has gone.
  Step Write(Clock::time_point now, absl::string_view* bytes);

  // Takes back the last so many bytes of what Read has just told of, and throws away whatever comes
  // after. With `reset`, Write says kBroken once the rest has gone.
  void Sever(size_t bytes, bool reset);

  // When Write has something to do, if it is a matter of time.
  std::optional<Clock::time_point> NextDue() const;
  int64_t buffered_bytes() const { return buffered_bytes_; }
  // Everything has been passed on, and that it is over.
  bool finished() const { return finished_; }

 private:
  struct Chunk {
    std::string bytes;   // empty: the end
    bool reset = false;  // the end is one
    Clock::time_point due;
  };

  size_t ReadSize() const;
  void Append(absl::string_view bytes, Clock::time_point now);

  const int from_;
  const int to_;
  const Treatment* const treatment_;
  const int64_t max_buffered_bytes_;

  bool readable_ = false;
  bool writable_ = false;
  bool ended_ = false;  // `from` has
  bool severed_ = false;
  bool finished_ = false;
  std::deque<Chunk> chunks_;
  size_t written_ = 0;  // of the first chunk
  int64_t buffered_bytes_ = 0;
  Clock::time_point line_free_;  // where throughput is limited: when the next byte may go
  std::string last_;             // what Read or Write has told about
};

}  // namespace tensord::proxy
