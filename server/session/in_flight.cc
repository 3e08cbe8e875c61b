#include "tensord/server/session/in_flight.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server {
namespace {

// The budget is charged in multiples of this.
constexpr int64_t kBlockBytes = Charge::kBlockBytes;
constexpr int64_t kMaxSpareBytes = 4 * kBlockBytes;

}  // namespace

absl::Status InFlight::Begin(int64_t bytes) {
  const int64_t added = kCountUnit + bytes;
  const int64_t sums = count_and_bytes_.fetch_add(added, std::memory_order_relaxed) + added;
  absl::Status begun;
  if (sums / kCountUnit > max_count_) {
    begun = absl::ResourceExhaustedError(
        absl::StrCat("the session has ", max_count_,
                     " ops waiting to run or calls waiting for tensors, its limit; wait for some, "
                     "or write the tensors that they wait for"));
  } else if (BytesIn(sums) > charged_bytes_.load(std::memory_order_relaxed)) {
    begun = ChargeMore();
  }
  if (!begun.ok()) count_and_bytes_.fetch_sub(added, std::memory_order_relaxed);
  return begun;
}

void InFlight::End(int64_t bytes) {
  const int64_t removed = kCountUnit + bytes;
  const int64_t sums = count_and_bytes_.fetch_sub(removed, std::memory_order_relaxed) - removed;
  const int64_t charged = charged_bytes_.load(std::memory_order_relaxed);
  if (charged - std::max(BytesIn(sums), prepaid_bytes_) >= kMaxSpareBytes) ReturnSpare();
}

absl::Status InFlight::ChargeMore() {
  MutexLock lock(&mu_);
  const int64_t missing =
      BytesIn(count_and_bytes_.load(std::memory_order_relaxed)) - charged_bytes_;
  if (missing <= 0) return absl::OkStatus();
  const int64_t bytes = (missing + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  TENSORD_RETURN_IF_ERROR(budget_->Charge(bytes));
  charged_bytes_ += bytes;
  return absl::OkStatus();
}

void InFlight::ReturnSpare() {
  MutexLock lock(&mu_);
  const int64_t needed =
      std::max(BytesIn(count_and_bytes_.load(std::memory_order_relaxed)), prepaid_bytes_);
  const int64_t spare = charged_bytes_ - needed;
  if (spare < kMaxSpareBytes) return;
  const int64_t bytes = spare / kBlockBytes * kBlockBytes - kBlockBytes;
  budget_->Return(bytes);
  charged_bytes_ -= bytes;
}

}  // namespace tensord::server
