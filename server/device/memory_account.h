// Who pays for memory: a session's bytes on a device, and its principal's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/server/device/buffer.h"

namespace tensord::server {

// How much is in use of something that has a limit. Thread-safe; a few nanoseconds.
class Usage {
 public:
  // Takes `amount` or changes nothing: false where it would be more than `limit` then. 0 is no
  // limit.
  bool Take(int64_t amount, int64_t limit) {
    int64_t used = used_.load(std::memory_order_relaxed);
    do {
      if (limit != 0 && amount > limit - used) return false;
    } while (!used_.compare_exchange_weak(used, used + amount, std::memory_order_relaxed));
    return true;
  }
  void Return(int64_t amount) { used_.fetch_sub(amount, std::memory_order_relaxed); }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> used_{0};
};

using UsageRef = std::shared_ptr<Usage>;

// What is given back when this goes.
class UsageHold {
 public:
  UsageHold() = default;
  // `amount` has been taken.
  UsageHold(UsageRef usage, int64_t amount) : usage_(std::move(usage)), amount_(amount) {}
  ~UsageHold() {
    if (usage_ != nullptr) usage_->Return(amount_);
  }
  UsageHold(UsageHold&& other) noexcept = default;
  UsageHold& operator=(UsageHold&& other) noexcept {
    std::swap(usage_, other.usage_);
    std::swap(amount_, other.amount_);
    return *this;
  }

 private:
  UsageRef usage_;
  int64_t amount_ = 0;
};

// What fills a new buffer: a kernel, or Device::Write() or a collective operation.
enum class FirstUse { kKernel, kTransfer };

// A buffer is charged to the session that allocated it for as long as the buffer lives, whoever
// holds it meanwhile: what shares memory is charged once. Thread-safe. Lives until it is closed and
// its last buffer has gone.
class MemoryAccount {
 public:
  struct Options {
    std::string device;               // for messages
    int64_t session_limit_bytes = 0;  // 0: none
    UsageRef principal;               // null where the principal has no limit
    int64_t principal_limit_bytes = 0;
  };

  struct Closer {
    void operator()(MemoryAccount* account) const { account->Return(kOpen); }
  };
  // As long as it is held memory may be taken.
  using Ref = std::unique_ptr<MemoryAccount, Closer>;
  static Ref Open(Options options) { return Ref(new MemoryAccount(std::move(options))); }

  // Takes `bytes` or changes nothing: RESOURCE_EXHAUSTED that names the limit.
  absl::Status Take(int64_t bytes);
  void ReturnBytes(int64_t bytes) {
    if (options_.principal != nullptr) options_.principal->Return(bytes);
    Return(bytes);
  }

  // Whether what `other` returns may make room for this one.
  bool SharesLimitWith(const MemoryAccount& other) const {
    return this == &other ||
           (options_.principal != nullptr && options_.principal == other.options_.principal);
  }

  int64_t used_bytes() const { return used_.load(std::memory_order_relaxed) & (kOpen - 1); }

 private:
  // Stands in used_ for whoever opened the account, so that one counter tells both how much is used
  // and whether anybody is left.
  static constexpr int64_t kOpen = int64_t{1} << 62;

  friend absl::StatusOr<BufferRef> AllocateFor(MemoryAccount&, Device&, int64_t, FirstUse);
  friend absl::StatusOr<BufferRef> AllocateSpareFor(MemoryAccount&, Device&, int64_t);

  explicit MemoryAccount(Options options) : options_(std::move(options)) {}
  ~MemoryAccount() = default;

  void Return(int64_t amount) {
    if (used_.fetch_sub(amount, std::memory_order_acq_rel) == amount) delete this;
  }
  // The bytes have been taken: they are the buffer's from here on, or returned where there is none.
  absl::StatusOr<BufferRef> Charge(absl::StatusOr<BufferRef> buffer, int64_t bytes);
  absl::Status Refuse(bool session, int64_t bytes, int64_t used) const;

  const Options options_;
  std::atomic<int64_t> used_{kOpen};
};

// Memory of a device, charged to `account`, which is open. RESOURCE_EXHAUSTED where that, or the
// device, has no more, not even once what is only spare (Device::spares) has been given up.
absl::StatusOr<BufferRef> AllocateFor(MemoryAccount& account, Device& device, int64_t size_bytes,
                                      FirstUse first_use = FirstUse::kKernel);

// The same for what will itself be spare: nobody gives anything up for it.
absl::StatusOr<BufferRef> AllocateSpareFor(MemoryAccount& account, Device& device,
                                           int64_t size_bytes);

}  // namespace tensord::server
