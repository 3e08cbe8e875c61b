// Limits the host memory that the server uses for callers: for open calls, requests, handles,
// definitions, programs, ops in flight, answers, sessions, members of groups, tickets and names.
// The elements of tensors are not counted. The charge for each object is an estimate, which the
// object's class documents.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "tensord/server/device/memory_account.h"
#include "tensord/server/session/principal.h"

namespace tensord::server {

// Returns the estimated memory of an error that is kept.
int64_t HostBytesOf(const absl::Status& error);

// The limits of the process, and of each principal. Thread-safe.
class HostBudget {
 public:
  // A limit of 0 means no limit.
  HostBudget(int64_t limit_bytes, int64_t principal_limit_bytes)
      : limit_bytes_(limit_bytes), principal_limit_bytes_(principal_limit_bytes) {}

  int64_t limit_bytes() const { return limit_bytes_; }
  int64_t used_bytes() const { return used_.used(); }

 private:
  friend class HostAccount;

  const int64_t limit_bytes_;
  const int64_t principal_limit_bytes_;
  Usage used_;
};

// Charges bytes to a principal and to the process. Thread-safe. A session and everything that is
// made for it share one account.
class HostAccount {
 public:
  HostAccount(std::shared_ptr<HostBudget> budget, PrincipalRef principal)
      : budget_(std::move(budget)), principal_(std::move(principal)) {}

  const PrincipalRef& principal() const { return principal_; }

  // Charges `bytes`. If that would exceed a limit by more than `past_limit`, changes nothing and
  // returns RESOURCE_EXHAUSTED. The message names the flag, and the bytes that the caller and all
  // other callers hold.
  absl::Status Charge(int64_t bytes, int64_t past_limit = 0);
  // Charges `bytes` of memory that is in use already, even past the limits.
  void ChargePastLimit(int64_t bytes);
  void Return(int64_t bytes);

 private:
  absl::Status Refuse(bool principal, int64_t bytes) const;
  int64_t principal_limit_bytes() const {
    return principal_->limit(PrincipalLimit::kHostBytes, budget_->principal_limit_bytes_);
  }

  const std::shared_ptr<HostBudget> budget_;
  const PrincipalRef principal_;
};

using HostAccountRef = std::shared_ptr<HostAccount>;

// Bytes that are charged to an account until this object is destroyed. Not thread-safe.
class HostCharge {
 public:
  HostCharge() = default;
  explicit HostCharge(HostAccountRef account) : account_(std::move(account)) {}
  ~HostCharge() {
    if (account_ != nullptr) account_->Return(bytes_);
  }
  HostCharge(HostCharge&& other) noexcept { *this = std::move(other); }
  HostCharge& operator=(HostCharge&& other) noexcept {
    std::swap(account_, other.account_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  const HostAccountRef& account() const { return account_; }

  // Add() and AddPastLimit() charge as HostAccount::Charge() and ChargePastLimit() do. The object
  // must have an account.
  absl::Status Add(int64_t bytes, int64_t past_limit = 0) {
    absl::Status charged = account_->Charge(bytes, past_limit);
    if (charged.ok()) bytes_ += bytes;
    return charged;
  }
  void AddPastLimit(int64_t bytes) {
    account_->ChargePastLimit(bytes);
    bytes_ += bytes;
  }

 private:
  HostAccountRef account_;
  int64_t bytes_ = 0;
};

// Batches many small charges: takes blocks of kBlockBytes from its account, so that most calls
// change only this object. Not thread-safe: the owner's lock guards it.
class BatchedHostCharge {
 public:
  static constexpr int64_t kBlockBytes = 16 << 10;

  explicit BatchedHostCharge(HostAccountRef account) : account_(std::move(account)) {}
  ~BatchedHostCharge() { ReturnAll(); }
  BatchedHostCharge(const BatchedHostCharge&) = delete;
  BatchedHostCharge& operator=(const BatchedHostCharge&) = delete;

  // Charges `bytes` as HostAccount::Charge() does.
  absl::Status Charge(int64_t bytes) {
    if (used_bytes_ + bytes > charged_bytes_) return ChargeBlocks(bytes);
    used_bytes_ += bytes;
    return absl::OkStatus();
  }
  void ChargePastLimit(int64_t bytes);
  void Return(int64_t bytes) {
    used_bytes_ -= bytes;
    if (charged_bytes_ - used_bytes_ >= kMaxSpareBytes) ReturnBlocks();
  }

  void ReturnAll() {
    account_->Return(std::exchange(charged_bytes_, 0));
    used_bytes_ = 0;
  }

  const HostAccountRef& account() const { return account_; }

 private:
  static constexpr int64_t kMaxSpareBytes = 2 * kBlockBytes;

  // Returns the size of the blocks to take from the account before `bytes` more can be used.
  int64_t MissingBytes(int64_t bytes) const;
  absl::Status ChargeBlocks(int64_t bytes);
  void ReturnBlocks();

  const HostAccountRef account_;
  int64_t charged_bytes_ = 0;  // from the account: whole blocks
  int64_t used_bytes_ = 0;
};

}  // namespace tensord::server
