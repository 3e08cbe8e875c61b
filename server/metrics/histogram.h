// A histogram of durations.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tensord::server::metrics {

// Thread-safe. Add() takes a few nanoseconds.
class Histogram {
 public:
  // The upper bounds of the buckets, in seconds. Each bucket includes its bound. One more bucket
  // has no bound.
  static constexpr std::array<double, 13> kBounds = {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1,
                                                     0.3,    1,      3,     10,    30,   100};

  void Add(std::chrono::nanoseconds duration) {
    const double seconds = std::chrono::duration<double>(duration).count();
    size_t bucket = 0;
    while (bucket < kBounds.size() && seconds > kBounds[bucket]) ++bucket;
    counts_[bucket].fetch_add(1, std::memory_order_relaxed);
    nanoseconds_.fetch_add(duration.count(), std::memory_order_relaxed);
  }

  struct Snapshot {
    std::array<int64_t, kBounds.size() + 1> counts;  // of each bucket alone
    double sum_seconds;
  };
  Snapshot Read() const {
    Snapshot snapshot;
    for (size_t i = 0; i < counts_.size(); ++i) {
      snapshot.counts[i] = counts_[i].load(std::memory_order_relaxed);
    }
    snapshot.sum_seconds = static_cast<double>(nanoseconds_.load(std::memory_order_relaxed)) * 1e-9;
    return snapshot;
  }

 private:
  std::array<std::atomic<int64_t>, kBounds.size() + 1> counts_{};
  std::atomic<int64_t> nanoseconds_{0};
};

}  // namespace tensord::server::metrics
