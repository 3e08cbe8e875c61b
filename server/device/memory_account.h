// Counts a session's bytes on a device against the quotas of the session and of its principal.
// (device_memory_limit.h counts all bytes of a device against the device's limit.)
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/device/buffer.h"

namespace tensord::server {

// Counts how much of a limited amount is in use. Thread-safe. A call takes a few nanoseconds.
class Usage {
 public:
  // Adds `amount`. If the sum would exceed `limit`, changes nothing and returns false. A `limit` of
  // 0 means no limit.
  bool Charge(int64_t amount, int64_t limit) {
    int64_t used = used_.load(std::memory_order_relaxed);
    do {
      // `used` may exceed the limit, because the operator can lower the limit at any time.
      if (limit != 0 && amount > limit - used && amount != 0) return false;
    } while (!used_.compare_exchange_weak(used, used + amount, std::memory_order_relaxed));
    return true;
  }
  void Return(int64_t amount) { used_.fetch_sub(amount, std::memory_order_relaxed); }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> used_{0};
};

using UsageRef = std::shared_ptr<Usage>;

// Returns an amount to its Usage when it is destroyed.
class UsageCharge {
 public:
  UsageCharge() = default;
  // The caller must have charged `amount` to `usage`.
  UsageCharge(UsageRef usage, int64_t amount) : usage_(std::move(usage)), amount_(amount) {}
  ~UsageCharge() {
    if (usage_ != nullptr) usage_->Return(amount_);
  }
  UsageCharge(UsageCharge&& other) noexcept = default;
  UsageCharge& operator=(UsageCharge&& other) noexcept {
    std::swap(usage_, other.usage_);
    std::swap(amount_, other.amount_);
    return *this;
  }

 private:
  UsageRef usage_;
  int64_t amount_ = 0;
};

class MemoryAccount;

// The accounts of one owner on one device. Each account adds itself, and removes itself when it is
// destroyed. Thread-safe.
class MemoryAccounts {
 public:
  // Returns the sum of the bytes that are charged to the accounts, closed ones included.
  int64_t used_bytes() const;

 private:
  friend class MemoryAccount;
  void Add(const MemoryAccount* account);
  void Remove(const MemoryAccount* account);

  mutable Mutex mu_;
  absl::flat_hash_set<const MemoryAccount*> accounts_ ABSL_GUARDED_BY(mu_);
};

// What fills a new buffer: a kernel, or a transfer (Device::Write() or a collective operation).
enum class FirstUse { kKernel, kTransfer };

// A buffer is charged to the session that allocated it while the buffer exists, also if only other
// sessions refer to it. Tensors that share a buffer are charged once. Thread-safe. The account
// exists until it is closed and its last buffer is destroyed.
class MemoryAccount {
 public:
  struct Options {
    std::string device;               // the device's name, for messages
    int64_t session_limit_bytes = 0;  // 0: none
    UsageRef principal;               // null: the principal has no limit
    // Returns the principal's limit, or 0 if it has none. It is called only while `principal`
    // exists.
    std::function<int64_t()> principal_limit_bytes;
    // Returns LimitReached::source of the principal's limit. It is called only while `principal`
    // exists. May be empty.
    std::function<std::string()> principal_limit_source;
    std::shared_ptr<MemoryAccounts> accounts;  // the account is added to these; may be null
    // If AllocateFor() fails with RESOURCE_EXHAUSTED, it passes the error to this function. May be
    // empty.
    std::function<void(const absl::Status&)> on_refused;
  };

  struct Closer {
    void operator()(MemoryAccount* account) const { account->Return(kOpen); }
  };
  // Charges are accepted while this reference exists.
  using Ref = std::unique_ptr<MemoryAccount, Closer>;
  static Ref Open(Options options) { return Ref(new MemoryAccount(std::move(options))); }

  // Charges `bytes`. If that would exceed a limit, changes nothing and returns RESOURCE_EXHAUSTED,
  // which names the limit.
  absl::Status Charge(int64_t bytes);
  void ReturnBytes(int64_t bytes) {
    if (options_.principal != nullptr) options_.principal->Return(bytes);
    Return(bytes);
  }

  // Returns whether bytes that are returned to `other` may make room for charges to this account.
  bool SharesLimitWith(const MemoryAccount& other) const {
    return this == &other ||
           (options_.principal != nullptr && options_.principal == other.options_.principal &&
            options_.principal_limit_bytes() != 0);
  }

  int64_t used_bytes() const { return used_.load(std::memory_order_relaxed) & (kOpen - 1); }

 private:
  // Part of used_ while the account is open. So one counter contains the used bytes and whether the
  // account is open. The account is deleted when the counter reaches 0.
  static constexpr int64_t kOpen = int64_t{1} << 62;

  friend absl::StatusOr<BufferRef> AllocateFor(MemoryAccount&, Device&, int64_t, FirstUse);
  friend absl::StatusOr<BufferRef> AllocateSpareFor(MemoryAccount&, Device&, int64_t);

  explicit MemoryAccount(Options options);
  ~MemoryAccount();

  void Return(int64_t amount) {
    if (used_.fetch_sub(amount, std::memory_order_acq_rel) == amount) delete this;
  }
  // The caller has charged `bytes` for `buffer`. If the allocation succeeded, makes the buffer
  // return the bytes when it is destroyed. Otherwise returns them now.
  absl::StatusOr<BufferRef> BindCharge(absl::StatusOr<BufferRef> buffer, int64_t bytes);
  absl::Status Refuse(bool session, int64_t bytes, int64_t used) const;
  // Returns a device's error. Adds to its message how many bytes the caller and all other callers
  // hold on the device, and how many of these are scratch memory. `bytes` are charged for the
  // allocation that failed.
  absl::Status WithMemoryHolders(const absl::Status& refused, int64_t bytes,
                                 const Device& device) const;
  void ReportRefused(const absl::Status& status) const {
    if (options_.on_refused && absl::IsResourceExhausted(status)) options_.on_refused(status);
  }

  const Options options_;
  std::atomic<int64_t> used_{kOpen};
};

// Allocates memory of a device and charges it to `account`, which must be open. If the quota or the
// device is exhausted, frees spare memory (Device::spares). If there was some, tries once more. If
// the quota or the device is still exhausted, returns RESOURCE_EXHAUSTED. Returns other errors of
// the device unchanged.
absl::StatusOr<BufferRef> AllocateFor(MemoryAccount& account, Device& device, int64_t size_bytes,
                                      FirstUse first_use = FirstUse::kKernel);

// Does the same as AllocateFor() for memory that is itself spare. Frees no other spare memory.
absl::StatusOr<BufferRef> AllocateSpareFor(MemoryAccount& account, Device& device,
                                           int64_t size_bytes);

}  // namespace tensord::server
