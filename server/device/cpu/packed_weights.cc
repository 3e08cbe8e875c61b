#include "tensord/server/device/cpu/packed_weights.h"

#include <utility>

#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {
namespace {

// The use at which a weight is packed. Packing costs about as much as a product.
constexpr int kUsesBeforePacking = 3;
// The number of uses until the next attempt, if there was no room or the copy was released.
constexpr int kUsesBetweenTries = 64;

}  // namespace

// Memory of the pool that counts against the device's limit.
class PackedWeights::Copy {
 public:
  // The caller has reserved layout->bytes() in `memory_limit`.
  Copy(DeviceMemoryLimit* memory_limit, MemoryPool* pool,
       std::shared_ptr<const PackedLayout> layout)
      : memory_limit_(memory_limit),
        pool_(pool),
        layout_(std::move(layout)),
        data_(pool->Allocate(bytes())) {}
  ~Copy() {
    if (data_ != nullptr) pool_->Free(data_, bytes());
    memory_limit_->ReleaseCopy(bytes());
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  const PackedLayout& layout() const { return *layout_; }
  void* data() const { return data_; }  // null if the system had too little memory
  int64_t bytes() const { return layout_->bytes(); }

 private:
  DeviceMemoryLimit* const memory_limit_;
  MemoryPool* const pool_;
  const std::shared_ptr<const PackedLayout> layout_;
  void* const data_;
};

const void* PackedWeights::DataOf(const Copy& copy) { return copy.data(); }

std::shared_ptr<const PackedWeights::Copy> PackedWeights::Use(
    const Buffer* weight, const std::shared_ptr<const PackedLayout>& layout) {
  {
    MutexLock lock(&mu_);
    Entry& entry = entries_[weight];
    if (entry.copy != nullptr) {
      recent_.splice(recent_.begin(), recent_, entry.place);
      const bool fits = layout->IsSame(entry.copy->layout());
      return fits ? entry.copy : nullptr;
    }
    if (++entry.uses < kUsesBeforePacking) return nullptr;
  }
  const YieldScope no_yield(nullptr);  // a short task that runs here might pack the same weight
  std::shared_ptr<const Copy> copy = MakeCopy(weight, layout);
  MutexLock lock(&mu_);
  Entry& entry = entries_[weight];
  if (copy == nullptr) {
    entry.uses = kUsesBeforePacking - kUsesBetweenTries;
    return nullptr;
  }
  entry.copy = copy;
  recent_.push_front(weight);
  entry.place = recent_.begin();
  return copy;
}

std::shared_ptr<const PackedWeights::Copy> PackedWeights::MakeCopy(
    const Buffer* weight, const std::shared_ptr<const PackedLayout>& layout) {
  if (!memory_limit_->ReserveCopy(layout->bytes()).ok()) return nullptr;
  auto copy = std::make_shared<const Copy>(memory_limit_, pool_, layout);
  if (copy->data() == nullptr || !layout->Pack(weight->data(), copy->data()).ok()) return nullptr;
  return copy;
}

void PackedWeights::Erase(const Buffer* weight) {
  std::shared_ptr<const Copy> freed;  // destroyed without the lock
  MutexLock lock(&mu_);
  const auto found = entries_.find(weight);
  if (found == entries_.end()) return;
  if (found->second.copy != nullptr) recent_.erase(found->second.place);
  freed = std::move(found->second.copy);
  entries_.erase(found);
}

bool PackedWeights::Release(int64_t bytes) {
  std::list<std::shared_ptr<const Copy>> freed;
  MutexLock lock(&mu_);
  while (bytes > 0 && !recent_.empty()) {
    Entry& entry = entries_[recent_.back()];
    recent_.pop_back();
    bytes -= entry.copy->bytes();
    entry.uses = kUsesBeforePacking - kUsesBetweenTries;
    freed.push_back(std::move(entry.copy));
    entry.copy = nullptr;
  }
  return !freed.empty();
}

}  // namespace tensord::server::cpu
