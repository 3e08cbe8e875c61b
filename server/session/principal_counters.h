// Counts what principals have used so far, for metrics.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/device/memory_account.h"

namespace tensord::server {

// The reasons of requests that are refused at a limit, as the ErrorInfo of their status has them.
// The last one stands for all others.
inline constexpr std::array<absl::string_view, 18> kLimitReasons = {
    "SESSION_BYTES_EXCEEDED",
    "PRINCIPAL_BYTES_EXCEEDED",
    "DEVICE_OUT_OF_MEMORY",
    "SESSION_HANDLES_EXCEEDED",
    "PRINCIPAL_HANDLES_EXCEEDED",
    "SERVER_SESSIONS_EXCEEDED",
    "PRINCIPAL_SESSIONS_EXCEEDED",
    "PRINCIPAL_UPLOAD_BYTES_EXCEEDED",
    "PRINCIPAL_PUBLICATIONS_EXCEEDED",
    "PRINCIPAL_TICKETS_EXCEEDED",
    "PRINCIPAL_PULLS_EXCEEDED",
    "PRINCIPAL_CONNECTIONS_EXCEEDED",
    "SESSION_GROUP_MEMBERS_EXCEEDED",
    "PRINCIPAL_GROUP_MEMBERS_EXCEEDED",
    "OP_SECONDS_EXCEEDED",
    "PRINCIPAL_HOST_BYTES_EXCEEDED",
    "SERVER_HOST_BYTES_EXCEEDED",
    "OTHER",
};

// How bytes are transferred: in the messages of calls, or as bulk data (Write, Read, Fetch,
// SharedMemory, and pulls from other servers).
enum class Transfer { kMessage, kBulk };
inline constexpr std::array<absl::string_view, 2> kTransferNames = {"message", "bulk"};

// The counters of one principal, or of several. Thread-safe. A call takes a few nanoseconds.
class PrincipalCounters {
 public:
  using Counter = std::atomic<int64_t>;

  explicit PrincipalCounters(std::string label) : label_(std::move(label)) {}

  // Returns the name for metrics.
  const std::string& label() const { return label_; }

  void CountReceived(Transfer transfer, int64_t bytes) { Add(&received_[Index(transfer)], bytes); }
  void CountSent(Transfer transfer, int64_t bytes) { Add(&sent_[Index(transfer)], bytes); }
  // Counts a request that is refused for this reason of kLimitReasons, or for another one.
  void CountRefusal(absl::string_view reason);

  int64_t received_bytes(Transfer transfer) const { return received_[Index(transfer)]; }
  int64_t sent_bytes(Transfer transfer) const { return sent_[Index(transfer)]; }
  int64_t refusals(size_t reason) const { return refusals_[reason]; }  // index in kLimitReasons

  // The use of one device.
  struct OnDevice {
    Counter nanoseconds{0};   // the time of tasks and InlineLocks (Executor::NewLane())
    MemoryAccounts accounts;  // of all sessions
  };
  // Returns the counters of a device, by its index. The reference is valid while this object
  // exists.
  OnDevice& on_device(int device);

 private:
  static size_t Index(Transfer transfer) { return static_cast<size_t>(transfer); }
  static void Add(Counter* counter, int64_t amount) {
    counter->fetch_add(amount, std::memory_order_relaxed);
  }

  const std::string label_;
  std::array<Counter, kTransferNames.size()> received_{};
  std::array<Counter, kTransferNames.size()> sent_{};
  std::array<Counter, kLimitReasons.size()> refusals_{};
  Mutex mu_;
  std::deque<OnDevice> devices_ ABSL_GUARDED_BY(mu_);  // grows only; elements don't move
};

// While this object exists, CountRefusal() counts nothing on this thread. Use it for an attempt
// that is repeated if it fails, and for charges whose failure refuses no request.
class RefusalCountingPause {
 public:
  RefusalCountingPause();
  ~RefusalCountingPause();
  RefusalCountingPause(const RefusalCountingPause&) = delete;
  RefusalCountingPause& operator=(const RefusalCountingPause&) = delete;

 private:
  const bool outer_;  // this thread had such an object before
};

using PrincipalCountersRef = std::shared_ptr<PrincipalCounters>;

// The counters of all principals, by label. The table has at most kMaxPrincipals labels. All
// further principals share the counters of the label kOther. Counters that nothing has referred to
// for kRetention are dropped, so that another principal can have a label. Thread-safe.
class PrincipalCountersTable {
 public:
  using Clock = std::chrono::steady_clock::time_point (*)();

  static constexpr size_t kMaxPrincipals = 100;
  static constexpr std::chrono::minutes kRetention{10};
  // No principal has this name: names of tokens have no parentheses, names of certificates begin
  // with their kind, and the anonymous name is "(anonymous)".
  static constexpr char kOther[] = "(other)";

  explicit PrincipalCountersTable(Clock clock = &std::chrono::steady_clock::now) : clock_(clock) {}

  // Returns the counters of this label, or those of kOther. Hold the reference while they may count
  // something.
  PrincipalCountersRef Get(absl::string_view label);

  // Returns the counters of all labels, in order of label, and last those of kOther, if there are
  // any.
  std::vector<PrincipalCountersRef> All();

 private:
  struct Entry {
    PrincipalCountersRef counters;
    // The last time at which DropUnusedLocked() found the counters in use.
    std::chrono::steady_clock::time_point last_used;
    bool used = true;  // Get() has returned the counters since the last DropUnusedLocked()
  };

  // Drops the counters that nothing has referred to for kRetention.
  void DropUnusedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Clock clock_;
  Mutex mu_;
  std::map<std::string, Entry, std::less<>> entries_ ABSL_GUARDED_BY(mu_);
  PrincipalCountersRef other_ ABSL_GUARDED_BY(mu_);  // null until it is needed
};

}  // namespace tensord::server
