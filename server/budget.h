// Counts amounts that have a limit: bytes on devices, host memory, connections, sessions and so on.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "tensord/common/util/mutex.h"

namespace tensord::server {

// Returns the estimated memory of an error that is kept, for a budget of host memory.
int64_t HostBytesOf(const absl::Status& error);

class Budget;
using BudgetRef = std::shared_ptr<Budget>;

// Counts how much of an amount is in use, up to a limit. If it has a parent, the parent counts the
// same amount too: a session's bytes also count for its principal, and a principal's host memory
// for the process. Thread-safe. A call takes a few nanoseconds for each budget from this one up.
class Budget {
 public:
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

  // Returns the error of a charge of `amount` that would exceed the limit of `full`.
  using Refusal = std::function<absl::Status(const Budget& full, int64_t amount)>;

  Budget() = default;
  // `refusal` may be null if only TryCharge() charges this budget.
  explicit Budget(int64_t limit, BudgetRef parent = nullptr, Refusal refusal = nullptr)
      : limit_(limit), parent_(std::move(parent)), refusal_(std::move(refusal)) {}
  // `used` counts as in use from the beginning, in this budget only.
  Budget(int64_t limit, BudgetRef parent, int64_t used)
      : used_(used), limit_(limit), parent_(std::move(parent)) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // Charges `amount` (>= 0). If that would exceed a limit by more than `past_limit`, changes
  // nothing, and returns the budget whose limit it is: this one, or one of its ancestors. Otherwise
  // returns null. An amount of 0 always fits.
  const Budget* TryCharge(int64_t amount, int64_t past_limit = 0);
  // Does the same as TryCharge(). Returns the result of this budget's Refusal if a limit would be
  // exceeded.
  absl::Status Charge(int64_t amount, int64_t past_limit = 0) {
    const Budget* const full = TryCharge(amount, past_limit);
    return full == nullptr ? absl::OkStatus() : refusal_(*full, amount);
  }
  // Charges `amount` that is in use already, even past the limits.
  void ChargePastLimit(int64_t amount) {
    ChargeHere(amount);
    if (parent_ != nullptr) parent_->ChargePastLimit(amount);
  }
  // Does the same for this budget only.
  void ChargeHere(int64_t amount) { used_.fetch_add(amount, std::memory_order_relaxed); }
  // Returns `amount` to this budget and to its ancestors. Returns how much of this one is in use
  // afterwards. If that is 0, the caller may destroy this object.
  int64_t Return(int64_t amount) {
    if (parent_ != nullptr) parent_->Return(amount);
    return ReturnHere(amount);
  }
  // Returns `amount` to this budget only.
  int64_t ReturnHere(int64_t amount) {
    return used_.fetch_sub(amount, std::memory_order_acq_rel) - amount;
  }

  int64_t used() const { return used_.load(std::memory_order_relaxed); }
  // The limit may change at any time, also to less than what is in use.
  int64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  void SetLimit(int64_t limit) { limit_.store(limit, std::memory_order_relaxed); }
  bool limited() const { return limit() != kUnlimited; }
  // Returns how much may be charged now. It is negative while a limit is exceeded.
  int64_t room() const;
  const BudgetRef& parent() const { return parent_; }

 private:
  std::atomic<int64_t> used_{0};
  std::atomic<int64_t> limit_{kUnlimited};
  const BudgetRef parent_;
  const Refusal refusal_;
};

// An amount that is charged to a budget until this object is destroyed. Not thread-safe.
class Charge {
 public:
  // The block of charges that change often.
  static constexpr int64_t kBlockBytes = 16 << 10;

  Charge() = default;
  // Takes multiples of `block` from `budget`, so that with a large block most calls change only
  // this object. With blocks, it may keep up to two blocks more than it needs.
  explicit Charge(BudgetRef budget, int64_t block = 1)
      : budget_(std::move(budget)), block_(block) {}
  ~Charge() { Clear(); }
  Charge(Charge&& other) noexcept { *this = std::move(other); }
  Charge& operator=(Charge&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(block_, other.block_);
    std::swap(taken_, other.taken_);
    std::swap(used_, other.used_);
    return *this;
  }

  const BudgetRef& budget() const { return budget_; }

  // Adds `amount`, as Budget::Charge() and ChargePastLimit() do. The object must have a budget.
  absl::Status Add(int64_t amount, int64_t past_limit = 0) {
    if (used_ + amount > taken_) {
      const int64_t missing = Missing(amount);
      if (absl::Status charged = budget_->Charge(missing, past_limit); !charged.ok()) {
        return charged;
      }
      taken_ += missing;
    }
    used_ += amount;
    return absl::OkStatus();
  }
  void AddPastLimit(int64_t amount) {
    const int64_t missing = Missing(amount);
    budget_->ChargePastLimit(missing);
    taken_ += missing;
    used_ += amount;
  }
  // Returns a part of what was added.
  void Return(int64_t amount) {
    used_ -= amount;
    if (taken_ - used_ >= 2 * block_ - 1) ReturnBlocks();
  }
  // Returns everything.
  void Clear() {
    if (taken_ != 0) budget_->Return(std::exchange(taken_, 0));
    used_ = 0;
  }

 private:
  int64_t Missing(int64_t amount) const {
    const int64_t missing = used_ + amount - taken_;
    return missing <= 0 ? 0 : (missing + block_ - 1) / block_ * block_;
  }
  void ReturnBlocks();

  BudgetRef budget_;
  int64_t block_ = 1;
  int64_t taken_ = 0;  // from the budget: whole blocks
  int64_t used_ = 0;
};

// Charges that wait until they fit. Charges of one budget are made in the order of their requests.
// Among budgets, the queue goes in rotation. Thread-safe.
class ChargeQueue {
 public:
  // Runs `granted` when `amount` has been charged to `budget`: at once, or later on the thread that
  // calls Return(). If `budget` isn't in use, an amount above its own limit fits, because it would
  // never fit otherwise. Only this object may charge `budget` and its ancestors.
  void WhenFits(const BudgetRef& budget, int64_t amount, std::function<void()> granted);
  void Return(const BudgetRef& budget, int64_t amount);

 private:
  struct Waiting {
    int64_t amount;
    std::function<void()> granted;
  };
  // The charges that wait for one budget: at least one.
  struct Line {
    BudgetRef budget;
    std::deque<Waiting> waiting;
  };

  Mutex mu_;
  std::deque<Line> lines_ ABSL_GUARDED_BY(mu_);  // the next one first
};

}  // namespace tensord::server
