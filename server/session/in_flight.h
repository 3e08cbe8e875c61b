// Counts the work of a session that was accepted and has not ended. Charges the work's host memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "tensord/common/util/mutex.h"

#include "tensord/server/budget.h"

namespace tensord::server {

// Thread-safe. Each piece of work touches one atomic counter when it begins and one when it ends.
class InFlight {
 public:
  // Returns the estimated memory of an op: the op itself with its task, and for each input and
  // output a reference, a callback, and a tensor whose handle may have been dropped.
  static constexpr int64_t BytesOfOp(size_t inputs, size_t outputs) {
    return 512 + 384 * static_cast<int64_t>(inputs + outputs);
  }
  // The estimated memory of a callback that waits for a tensor, and of a call that waits for one.
  // If the call is cancelled, the memory is freed only when the wait ends.
  static constexpr int64_t kWaitBytes = 256;
  static constexpr int64_t kCallBytes = 1536;

  // The largest value of `max_count`.
  static constexpr int64_t kMaxCount = (1 << 22) - 1;
  // The caller has charged `prepaid_bytes` to the budget.
  InFlight(BudgetRef budget, int64_t max_count, int64_t prepaid_bytes)
      : budget_(std::move(budget)),
        max_count_(max_count),
        prepaid_bytes_(prepaid_bytes),
        charged_bytes_(prepaid_bytes) {}
  ~InFlight() { budget_->Return(charged_bytes_ - prepaid_bytes_); }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  // Counts a piece of work of `bytes` until End(). If that would exceed `max_count` or a limit of
  // the budget, returns RESOURCE_EXHAUSTED and counts nothing.
  absl::Status Begin(int64_t bytes);
  // Ends a piece of work. `bytes` must be the same as in its Begin().
  void End(int64_t bytes);

  // Returns how many pieces of work are in flight.
  int64_t count() const { return count_and_bytes_.load(std::memory_order_relaxed) / kCountUnit; }

 private:
  // One number holds both sums: the bytes in the lowest 40 bits, the pieces of work in the others.
  static constexpr int64_t kCountUnit = int64_t{1} << 40;
  static int64_t BytesIn(int64_t sums) { return sums % kCountUnit; }

  // Charges more bytes, so that the charged bytes are at least the bytes in flight.
  absl::Status ChargeMore();
  // Returns most of the bytes that are charged but not in flight to the budget.
  void ReturnSpare();

  const BudgetRef budget_;
  const int64_t max_count_;
  const int64_t prepaid_bytes_;
  std::atomic<int64_t> count_and_bytes_{0};
  Mutex mu_;  // held while charged_bytes_ changes
  std::atomic<int64_t> charged_bytes_;
};

}  // namespace tensord::server
