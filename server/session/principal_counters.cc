#include "tensord/server/session/principal_counters.h"

#include <algorithm>
#include <utility>

namespace tensord::server {
namespace {

thread_local bool counts_refusals = true;

}  // namespace

RefusalCountingPause::RefusalCountingPause() : outer_(!std::exchange(counts_refusals, false)) {}

RefusalCountingPause::~RefusalCountingPause() { counts_refusals = !outer_; }

void PrincipalCounters::CountRefusal(absl::string_view reason) {
  if (!counts_refusals) return;
  const auto last = kLimitReasons.end() - 1;
  const auto found = std::find(kLimitReasons.begin(), last, reason);
  Add(&refusals_[found - kLimitReasons.begin()], 1);
}

PrincipalCounters::OnDevice& PrincipalCounters::on_device(int device) {
  MutexLock lock(&mu_);
  while (devices_.size() <= static_cast<size_t>(device)) devices_.emplace_back();
  return devices_[device];
}

PrincipalCountersRef PrincipalCountersTable::Get(absl::string_view label) {
  MutexLock lock(&mu_);
  auto found = entries_.find(label);
  if (found == entries_.end() && entries_.size() >= kMaxPrincipals) DropUnusedLocked();
  if (found == entries_.end() && entries_.size() >= kMaxPrincipals) {
    if (other_ == nullptr) other_ = std::make_shared<PrincipalCounters>(kOther);
    return other_;
  }
  if (found == entries_.end()) {
    Entry entry{.counters = std::make_shared<PrincipalCounters>(std::string(label))};
    found = entries_.emplace(label, std::move(entry)).first;
  }
  found->second.used = true;
  return found->second.counters;
}

std::vector<PrincipalCountersRef> PrincipalCountersTable::All() {
  MutexLock lock(&mu_);
  DropUnusedLocked();
  std::vector<PrincipalCountersRef> all;
  for (const auto& [label, entry] : entries_) all.push_back(entry.counters);
  if (other_ != nullptr) all.push_back(other_);
  return all;
}

void PrincipalCountersTable::DropUnusedLocked() {
  const auto now = clock_();
  for (auto it = entries_.begin(); it != entries_.end();) {
    Entry& entry = it->second;
    if (std::exchange(entry.used, false) || entry.counters.use_count() > 1) entry.last_used = now;
    if (now - entry.last_used > kRetention) {
      it = entries_.erase(it);
    } else {
      ++it;
    }
  }
}

}  // namespace tensord::server
