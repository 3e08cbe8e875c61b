// Counts the calls of one method, for metrics.
#pragma once

#include <grpcpp/support/status.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "tensord/server/metrics/histogram.h"
#include "tensord/server/session/principal_counters.h"

namespace tensord::server {

// Thread-safe.
class MethodCounters {
 public:
  static constexpr size_t kCodes = 17;  // gRPC's status codes, from OK to UNAUTHENTICATED

  // The messages of the method's calls count as `transfer`.
  explicit MethodCounters(Transfer transfer) : transfer_(transfer) {}

  Transfer transfer() const { return transfer_; }

  // Counts a call that has ended. `duration` is the time since its arrival.
  void CountEnd(grpc::StatusCode code, std::chrono::nanoseconds duration) {
    const auto index = static_cast<size_t>(code);
    const size_t known = index < kCodes ? index : static_cast<size_t>(grpc::StatusCode::UNKNOWN);
    calls_[known].fetch_add(1, std::memory_order_relaxed);
    duration_.Add(duration);
  }

  int64_t calls(size_t code) const { return calls_[code].load(std::memory_order_relaxed); }
  metrics::Histogram::Snapshot duration() const { return duration_.Read(); }

 private:
  const Transfer transfer_;
  std::array<std::atomic<int64_t>, kCodes> calls_{};
  metrics::Histogram duration_;
};

}  // namespace tensord::server
