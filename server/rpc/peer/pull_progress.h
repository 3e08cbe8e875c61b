// Counts the bytes that a pull receives, and measures their time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace tensord::server {

// The bytes of one pull, over all its calls. Not thread-safe.
class PullProgress {
 public:
  using Clock = std::chrono::steady_clock;

  // Records that the first bytes have arrived. Later calls do nothing.
  void Begin() {
    if (!begun()) first_byte_ = Clock::now();
  }
  bool begun() const { return first_byte_.has_value(); }

  // Counts bytes that have been stored. `shared` says that they came through shared memory.
  void Add(int64_t bytes, bool shared) {
    bytes_ += bytes;
    if (shared) shared_bytes_ += bytes;
    last_byte_ = Clock::now();
  }
  int64_t bytes() const { return bytes_; }
  // Returns whether most of the bytes came through shared memory.
  bool mostly_shared() const { return 2 * shared_bytes_ > bytes_; }

  // The time of the last Add().
  Clock::time_point last_byte() const { return last_byte_; }
  // Returns the time from Begin() to the last Add(), or 0 if no byte has been stored.
  std::chrono::nanoseconds duration() const {
    return bytes_ > 0 && begun() ? last_byte_ - *first_byte_ : std::chrono::nanoseconds(0);
  }

 private:
  std::optional<Clock::time_point> first_byte_;
  Clock::time_point last_byte_;
  int64_t bytes_ = 0;
  int64_t shared_bytes_ = 0;
};

}  // namespace tensord::server
