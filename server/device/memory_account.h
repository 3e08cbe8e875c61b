// Counts a session's bytes on a device against the quotas of the session and of its principal.
// (device_memory_limit.h counts all bytes of a device against the device's limit.)
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/budget.h"
#include "tensord/server/device/buffer.h"

namespace tensord::server {

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
    BudgetRef principal;              // counts the session's bytes, too; may be null
    // Returns LimitReached::source of the principal's limit. It is called only while `principal`
    // exists. May be empty.
    std::function<std::string()> principal_limit_source;
    std::shared_ptr<MemoryAccounts> accounts;  // the account is added to these; may be null
    // If AllocateFor() fails with RESOURCE_EXHAUSTED, it passes the error to this function. May be
    // empty.
    std::function<void(const absl::Status&)> on_refused;
  };

  struct Closer {
    void operator()(MemoryAccount* account) const {
      if (account->budget_.ReturnHere(kOpen) == 0) delete account;
    }
  };
  // Charges are accepted while this reference exists.
  using Ref = std::unique_ptr<MemoryAccount, Closer>;
  static Ref Open(Options options) { return Ref(new MemoryAccount(std::move(options))); }

  // Charges `bytes`. If that would exceed a limit, changes nothing and returns RESOURCE_EXHAUSTED,
  // which names the limit.
  absl::Status Charge(int64_t bytes) {
    const Budget* const full = budget_.TryCharge(bytes);
    return full == nullptr ? absl::OkStatus() : Refuse(*full, bytes);
  }
  void ReturnBytes(int64_t bytes) {
    if (budget_.Return(bytes) == 0) delete this;
  }

  // Returns whether bytes that are returned to `other` may make room for charges to this account.
  bool SharesLimitWith(const MemoryAccount& other) const {
    const BudgetRef& principal = options_.principal;
    return this == &other ||
           (principal != nullptr && principal == other.options_.principal && principal->limited());
  }

  int64_t used_bytes() const { return budget_.used() & (kOpen - 1); }

 private:
  // In use while the account is open. So one counter contains the used bytes and whether the account
  // is open. The account is deleted when the counter reaches 0.
  static constexpr int64_t kOpen = int64_t{1} << 62;

  friend absl::StatusOr<BufferRef> AllocateFor(MemoryAccount&, Device&, int64_t, FirstUse);
  friend absl::StatusOr<BufferRef> AllocateSpareFor(MemoryAccount&, Device&, int64_t);

  explicit MemoryAccount(Options options);
  ~MemoryAccount();

  // The caller has charged `bytes` for `buffer`. If the allocation succeeded, makes the buffer
  // return the bytes when it is destroyed. Otherwise returns them now.
  absl::StatusOr<BufferRef> BindCharge(absl::StatusOr<BufferRef> buffer, int64_t bytes);
  // Returns the error of a charge that would exceed the limit of `full`.
  absl::Status Refuse(const Budget& full, int64_t bytes) const;
  // Returns a device's error. Adds to its message how many bytes the caller and all other callers
  // hold on the device, and how many of these are scratch memory. `bytes` are charged for the
  // allocation that failed.
  absl::Status WithMemoryHolders(const absl::Status& refused, int64_t bytes,
                                 const Device& device) const;
  void ReportRefused(const absl::Status& status) const {
    if (options_.on_refused && absl::IsResourceExhausted(status)) options_.on_refused(status);
  }

  const Options options_;
  Budget budget_;  // the session's
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
