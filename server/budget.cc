#include "tensord/server/budget.h"

#include <algorithm>
#include <vector>

namespace tensord::server {

int64_t HostBytesOf(const absl::Status& error) {
  // A status with its allocations, and for each payload a URL and a Cord.
  constexpr int64_t kStatusBytes = 96, kPayloadBytes = 192;
  int64_t bytes = kStatusBytes + static_cast<int64_t>(error.message().size());
  error.ForEachPayload([&bytes](absl::string_view, const absl::Cord& payload) {
    bytes += kPayloadBytes + static_cast<int64_t>(payload.size());
  });
  return bytes;
}

const Budget* Budget::TryCharge(int64_t amount, int64_t past_limit) {
  const int64_t limit = this->limit();
  if (limit == kUnlimited) {
    ChargeHere(amount);
  } else {
    int64_t used = used_.load(std::memory_order_relaxed);
    do {
      // `used` may exceed the limit, because the operator can lower the limit at any time.
      if (amount != 0 && amount - past_limit > limit - used) return this;
    } while (!used_.compare_exchange_weak(used, used + amount, std::memory_order_relaxed));
  }
  if (parent_ == nullptr) return nullptr;
  const Budget* const full = parent_->TryCharge(amount, past_limit);
  if (full != nullptr) ReturnHere(amount);
  return full;
}

int64_t Budget::room() const {
  const int64_t above = parent_ == nullptr ? kUnlimited : parent_->room();
  return limited() ? std::min(above, limit() - used()) : above;
}

void Charge::ReturnBlocks() {
  // One block remains for the next charges. Without blocks, nothing remains.
  const int64_t kept = block_ == 1 ? 0 : block_;
  const int64_t spare = (taken_ - used_) / block_ * block_ - kept;
  budget_->Return(spare);
  taken_ -= spare;
}

namespace {

// If the amount fits (ChargeQueue::WhenFits()), charges it and returns true.
bool ChargeIfFits(Budget& budget, int64_t amount) {
  const Budget* const full = budget.TryCharge(amount);
  if (full == nullptr) return true;
  if (full != &budget || budget.used() != 0) return false;
  if (budget.parent() != nullptr && budget.parent()->TryCharge(amount) != nullptr) return false;
  budget.ChargeHere(amount);
  return true;
}

}  // namespace

void ChargeQueue::WhenFits(const BudgetRef& budget, int64_t amount, std::function<void()> granted) {
  {
    MutexLock lock(&mu_);
    const auto line = std::find_if(lines_.begin(), lines_.end(),
                                   [&](const Line& each) { return each.budget == budget; });
    if (line != lines_.end()) {
      line->waiting.push_back({amount, std::move(granted)});
      return;
    }
    if (!ChargeIfFits(*budget, amount)) {
      lines_.emplace_back().budget = budget;
      lines_.back().waiting.push_back({amount, std::move(granted)});
      return;
    }
  }
  granted();
}

void ChargeQueue::Return(const BudgetRef& budget, int64_t amount) {
  std::vector<std::function<void()>> granted;
  {
    MutexLock lock(&mu_);
    budget->Return(amount);
    for (size_t tried = 0; tried < lines_.size();) {
      Line line = std::move(lines_.front());
      lines_.pop_front();
      if (ChargeIfFits(*line.budget, line.waiting.front().amount)) {
        granted.push_back(std::move(line.waiting.front().granted));
        line.waiting.pop_front();
        tried = 0;
      } else {
        ++tried;
      }
      if (!line.waiting.empty()) lines_.push_back(std::move(line));
    }
  }
  for (const auto& run : granted) run();
}

}  // namespace tensord::server
