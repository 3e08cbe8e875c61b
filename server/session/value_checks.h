// Checks of values whose outcome isn't known when an op has been launched (device/check_cell.h).
//
// A tensor that a checked op made is done once the op is launched. Its status is OK until an event
// after the launch has completed. Then the check is resolved: the status stays OK, or turns into
// the error for good. All results that were computed from the tensor meanwhile have the same check,
// so they get the same error.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/budget.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

// The check of one launch. Thread-safe, except SetSubject().
class ValueCheck {
 public:
  using Waiter = std::function<void()>;
  // Returns the error for a record that a kernel has written.
  using Describe = std::function<absl::Status(const CheckRecord&)>;

  ValueCheck(std::unique_ptr<CheckMemory> memory, Describe describe)
      : memory_(std::move(memory)), describe_(std::move(describe)) {}

  // The cell for the launch. Valid until the check is resolved.
  const CheckCell& cell() const { return memory_->cell(); }

  // Sets the op or program that the error names, and the handle of its first output. Charges the
  // check to `budget`, also past the limit. Call it before the check is shared. `op` must outlive
  // the check.
  void SetSubject(absl::string_view op, uint64_t handle, const BudgetRef& budget);

  bool resolved() const { return resolved_.load(std::memory_order_acquire); }
  // Returns OK, or the error: "index (tensor 17): index 12 at [3, 0] of input 1 is out of range for
  // axis 0 of size 10". Call it only if the check is resolved. The reference is valid while the
  // check exists.
  const absl::Status& status() const { return status_; }

  // Resolves the check, and runs its waiters on this thread. `fenced` is the status of a fence
  // after the launch; if it isn't OK, it becomes the status. If the check is resolved already, does
  // nothing.
  void Resolve(const absl::Status& fenced);

  // Runs `waiter` when the check is resolved, on the thread that resolves it. If the check is
  // resolved already, runs it at once.
  void WhenResolved(Waiter waiter);

 private:
  absl::Status ReadMemory() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::string_view op_;
  uint64_t handle_ = 0;
  Charge charge_;
  std::atomic<bool> resolved_{false};
  absl::Status status_;  // written before resolved_ is set, read after
  Mutex mu_;
  // All three are dropped when the check is resolved.
  std::unique_ptr<CheckMemory> memory_;
  Describe describe_;
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mu_);
};

using ValueCheckRef = std::shared_ptr<ValueCheck>;
using ValueCheckRefs = absl::InlinedVector<ValueCheckRef, 2>;

class CheckList;
using CheckListRef = std::shared_ptr<const CheckList>;  // null: there are no checks

// The checks on which a tensor's status depends, each once: those of its inputs in the order of the
// inputs, then its own. Thread-safe.
class CheckList {
 public:
  // If inputs have more unresolved checks than this, the op waits until they are resolved.
  static constexpr size_t kMaxChecks = 64;

  CheckList(ValueCheckRefs checks, const BudgetRef& budget);

  const ValueCheckRefs& checks() const { return checks_; }
  bool resolved() const;
  // Returns the error of the first check that failed, if all checks before it are resolved.
  // Otherwise returns OK. So an error never changes to another one. The reference is valid while
  // this object exists.
  const absl::Status& status() const;
  // Resolves the checks by a fence after their launches.
  void Resolve(const absl::Status& fenced) const;

  // Runs `waiter` when all checks of `list` are resolved, on the thread that resolves the last one,
  // or at once.
  static void WhenResolved(CheckListRef list, ValueCheck::Waiter waiter);

 private:
  const ValueCheckRefs checks_;
  Charge charge_;
};

// Collects the checks of an op's inputs and of the op.
class CheckCollector {
 public:
  // Adds the checks of an input, except those that are resolved or were added before.
  void Inherit(const CheckListRef& list);
  size_t size() const { return checks_.size(); }

  // Returns a list of all checks, with `own` at the end. If it has the checks of one input, returns
  // that input's list.
  CheckListRef Finish(const ValueCheckRefs& own, const BudgetRef& budget);

 private:
  ValueCheckRefs checks_;
  CheckListRef only_;  // the list of all checks; null if there is none
};

// The checks of one device that no fence has been enqueued for. Only the executor's thread uses it.
class PendingChecks {
 public:
  void Add(ValueCheckRef check) { checks_.push_back(std::move(check)); }
  // Counts an op whose result has unresolved checks. Returns true if a fence should be enqueued, so
  // that checks and their waiters don't collect.
  bool CountOp() { return ++ops_ >= kMaxOps; }
  // Removes and returns the checks, for a fence.
  std::vector<ValueCheckRef> Take();

 private:
  static constexpr int kMaxOps = 64;

  std::vector<ValueCheckRef> checks_;
  int ops_ = 0;
};

}  // namespace tensord::server
