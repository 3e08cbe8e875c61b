#include "tensord/server/session/value_checks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server {
namespace {

// The object, the text of an error, and the cell.
constexpr int64_t kCheckBytes = 768;
constexpr int64_t kListBytes = 128;

}  // namespace

void ValueCheck::SetSubject(absl::string_view op, uint64_t handle, const BudgetRef& budget) {
  op_ = op;
  handle_ = handle;
  charge_ = Charge(budget);
  charge_.AddPastLimit(kCheckBytes);
}

absl::Status ValueCheck::ReadMemory() const {
  TENSORD_ASSIGN_OR_RETURN(const CheckRecord record, memory_->Read());
  if (record.key == 0) return absl::OkStatus();
  return WithPrefix(describe_(record), absl::StrCat(op_, " (tensor ", handle_, "): "));
}

void ValueCheck::Resolve(const absl::Status& fenced) {
  if (resolved()) return;
  std::unique_ptr<CheckMemory> memory;
  Describe describe;
  std::vector<Waiter> waiters;
  {
    MutexLock lock(&mu_);
    if (resolved_.load(std::memory_order_relaxed)) return;
    status_ = fenced.ok() ? ReadMemory() : fenced;
    resolved_.store(true, std::memory_order_release);
    memory = std::move(memory_);
    describe = std::move(describe_);
    waiters.swap(waiters_);
  }
  for (Waiter& waiter : waiters) waiter();
}

void ValueCheck::WhenResolved(Waiter waiter) {
  {
    MutexLock lock(&mu_);
    if (!resolved_.load(std::memory_order_relaxed)) {
      waiters_.push_back(std::move(waiter));
      return;
    }
  }
  waiter();
}

CheckList::CheckList(ValueCheckRefs checks, const BudgetRef& budget)
    : checks_(std::move(checks)), charge_(budget) {
  charge_.AddPastLimit(kListBytes + static_cast<int64_t>(checks_.size() * sizeof(ValueCheckRef)));
}

bool CheckList::resolved() const {
  return std::all_of(checks_.begin(), checks_.end(),
                     [](const ValueCheckRef& check) { return check->resolved(); });
}

const absl::Status& CheckList::status() const {
  static const absl::Status& ok = *new absl::Status();
  for (const ValueCheckRef& check : checks_) {
    if (!check->resolved()) return ok;
    if (!check->status().ok()) return check->status();
  }
  return ok;
}

void CheckList::Resolve(const absl::Status& fenced) const {
  for (const ValueCheckRef& check : checks_) check->Resolve(fenced);
}

void CheckList::WhenResolved(CheckListRef list, ValueCheck::Waiter waiter) {
  for (const ValueCheckRef& check : list->checks_) {
    if (check->resolved()) continue;
    check->WhenResolved(
        [list = std::move(list), waiter = std::move(waiter)] { WhenResolved(list, waiter); });
    return;
  }
  waiter();
}

void CheckCollector::Inherit(const CheckListRef& list) {
  if (list == nullptr || list == only_) return;
  const bool first = checks_.empty();
  for (const ValueCheckRef& check : list->checks()) {
    const bool passed = check->resolved() && check->status().ok();
    if (!passed && std::find(checks_.begin(), checks_.end(), check) == checks_.end()) {
      checks_.push_back(check);
    }
  }
  only_ = first && checks_.size() == list->checks().size() ? list : nullptr;
}

CheckListRef CheckCollector::Finish(const ValueCheckRefs& own, const BudgetRef& budget) {
  if (own.empty() && (checks_.empty() || only_ != nullptr)) return std::move(only_);
  checks_.insert(checks_.end(), own.begin(), own.end());
  return std::make_shared<const CheckList>(std::move(checks_), budget);
}

std::vector<ValueCheckRef> PendingChecks::Take() {
  ops_ = 0;
  return std::exchange(checks_, {});
}

}  // namespace tensord::server
