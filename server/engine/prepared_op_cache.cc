#include "tensord/server/engine/prepared_op_cache.h"

#include <utility>

#include "tensord/common/util/key.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server {
namespace {

std::string KeyOf(absl::string_view op, absl::Span<const TensorSpec> inputs,
                  const Attributes& attrs, const DeviceSlot* slot) {
  std::string key;
  AppendKey(static_cast<const void*>(slot), &key);
  AppendKeyText(op, &key);
  AppendKey(inputs.size(), &key);
  for (const TensorSpec& input : inputs) {
    AppendKey(input.dtype, &key);
    AppendKey(input.shape.rank(), &key);
    for (int64_t dim : input.shape.dims()) AppendKey(dim, &key);
  }
  AppendKey(attrs, &key);
  return key;
}

}  // namespace

absl::StatusOr<PreparedOpRef> PreparedOpCache::Find(absl::string_view op,
                                                    absl::Span<const TensorSpec> inputs,
                                                    const Attributes& attrs, DeviceSlot* slot,
                                                    const BudgetRef& caller) {
  const bool constant = op == "constant";
  Entry entry;
  if (!constant) {
    entry.key = KeyOf(op, inputs, attrs, slot);
    MutexLock lock(&mu_);
    const auto found = index_.find(entry.key);
    if (found != index_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return found->second->op;
    }
  }
  TENSORD_ASSIGN_OR_RETURN(entry.op,
                           PreparedOp::Make(op, inputs, attrs, slot, caller, this, chains_));
  const int64_t bytes = BytesOf(entry);
  if (constant || bytes > max_bytes_ / 16) {
    TENSORD_RETURN_IF_ERROR(entry.op->ChargeCaller());
    return std::move(entry.op);
  }
  // The op is charged only when the cache evicts it. This temporary charge checks that the caller
  // has enough host memory for it now.
  if (caller != nullptr) TENSORD_RETURN_IF_ERROR(Charge(caller).Add(bytes));
  Entries evicted;
  MutexLock lock(&mu_);
  const auto found = index_.find(entry.key);
  if (found != index_.end()) return found->second->op;  // another thread added it
  entries_.push_front(std::move(entry));
  index_.emplace(entries_.front().key, entries_.begin());
  bytes_ += bytes;
  PreparedOpRef made = entries_.front().op;
  evicted = EvictLocked();
  return made;
}

int64_t PreparedOpCache::bytes() const {
  MutexLock lock(&mu_);
  return bytes_;
}

int64_t PreparedOpCache::BytesOf(const Entry& entry) {
  constexpr int64_t kEntryBytes = 192;
  return kEntryBytes + static_cast<int64_t>(entry.key.capacity()) + entry.op->host_bytes();
}

PreparedOpCache::Entries PreparedOpCache::EvictLocked() {
  Entries evicted;
  while (bytes_ > max_bytes_) {
    Entry& entry = entries_.back();
    if (entry.op.use_count() > 1) entry.op->ChargeCallerPastLimit();
    bytes_ -= BytesOf(entry);
    index_.erase(entry.key);
    evicted.splice(evicted.end(), entries_, std::prev(entries_.end()));
  }
  return evicted;
}

}  // namespace tensord::server
