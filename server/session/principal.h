// The identity that a call is made for. Sessions belong to principals.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/mutex.h"
#include "tensord/common/util/principal_limits.h"
#include "tensord/server/budget.h"
#include "tensord/server/session/limits.h"
#include "tensord/server/session/principal_counters.h"

namespace tensord::server {

// The name never changes. There is one object for each kind and name while it is referenced. So
// usage is counted on it, and two references are to the same principal if their addresses are
// equal. Only a PrincipalTable makes principals. The server's table belongs to the authenticator
// (server/rpc/auth/authenticator.h), so the authenticator has authenticated each principal.
class Principal {
 public:
  // How the caller was authenticated. One name of two kinds stands for two principals, because
  // tokens and certificates may be issued by different authorities.
  enum class Kind { kAnonymous, kToken, kCertificate };

  Kind kind() const { return kind_; }
  // Returns the name. For kToken, this is the name in the token file. For kCertificate, it is the
  // kind of name and the name, such as "cn:alice", "dns:box" or "uri:…".
  const std::string& name() const { return name_; }

  // Returns the weight for fair scheduling on devices: 1 to 1000. A change of the token file
  // changes it.
  const std::atomic<int>& weight() const { return weight_; }
  void SetWeight(int weight) const {
    if (weight != weight_) weight_ = weight;
  }

  // Sets the limits that the token file sets for the principal. The other ones are the server's.
  void SetLimits(const PrincipalLimits& limits) const;
  // `flag` is the name of a flag without its dashes. If the token file sets the limit of that flag
  // for the principal, returns LimitReached::source. Otherwise returns "".
  std::string limit_source(absl::string_view flag) const;
  // Returns whether the token file can set limits for this principal, now or later.
  bool can_have_own_limits() const { return kind_ == Kind::kToken; }

  // Returns the budget that counts what all sessions and connections of the principal hold. For
  // kBytes, see device_bytes(). kHandles and kUploadBytes are counted only if they have a limit or
  // can_have_own_limits(). kRequestBytes are bytes that gRPC holds and no handler has received, and
  // messages of uploads that wait. kResponseBytes are bytes that clients haven't received; charge
  // them with response_queue().
  Budget& budget(PrincipalLimit which) const { return budgets_[static_cast<size_t>(which)]; }
  // Counts the bytes on a device, by its index. The reference is valid while the principal exists.
  Budget& device_bytes(int device) const;
  // Counts open calls.
  Budget& calls() const { return calls_; }
  ChargeQueue& response_queue() const;

  // Returns the name in UTF-8, at most 256 bytes. If the name is longer, isn't UTF-8 or contains #,
  // changes it and adds # and a hash at its end. For kAnonymous, returns "(anonymous)". Two
  // principals have different names.
  std::string unique_name() const;

  // Counts what the principal has used so far. Other principals may share the counters.
  PrincipalCounters& counters() const { return *counters_; }
  const PrincipalCountersRef& counters_ref() const { return counters_; }

  // Counts the refusal, sets the source of `reached`, and returns ToStatus(reached).
  absl::Status Refuse(LimitReached reached) const;

 private:
  friend class PrincipalTable;
  struct Shared;

  Principal(Kind kind, absl::string_view name, PrincipalCountersRef counters,
            std::shared_ptr<Shared> shared);
  // Returns the limit of a budget: `own`, which the token file sets, or the server's.
  int64_t LimitOf(PrincipalLimit which, std::optional<int64_t> own) const;
  absl::Status RefuseAt(PrincipalLimit which, const Budget& full, int64_t amount) const;

  const Kind kind_;
  const std::string name_;
  const PrincipalCountersRef counters_;
  const std::shared_ptr<Shared> shared_;
  mutable std::atomic<int> weight_{1};
  mutable std::deque<Budget> budgets_;  // by PrincipalLimit
  mutable Budget calls_;
  mutable Mutex mu_;
  mutable PrincipalLimits own_limits_ ABSL_GUARDED_BY(mu_);
  mutable std::deque<Budget> device_bytes_ ABSL_GUARDED_BY(mu_);  // grows only; elements don't move
};

using PrincipalRef = std::shared_ptr<const Principal>;

// Returns the budget, which keeps the principal.
inline BudgetRef BudgetOf(const PrincipalRef& principal, PrincipalLimit which) {
  return BudgetRef(principal, &principal->budget(which));
}
// Charges `amount` to the principal. At its limit, returns RESOURCE_EXHAUSTED, which names the
// limit. The refusal is counted.
absl::StatusOr<Charge> ChargeTo(const PrincipalRef& principal, PrincipalLimit which,
                                int64_t amount = 1);

// The principals of a server. Thread-safe.
class PrincipalTable {
 public:
  // `limits` has the limits of all principals together, and the default limits of each principal.
  explicit PrincipalTable(const Limits& limits = {});

  // Counts the host memory of all principals together: what they hold for handles, programs, open
  // calls and so on. The elements of tensors are not counted. The charge for each object is an
  // estimate, which the object's class documents.
  const BudgetRef& host_budget() const;

  // Returns the principal of this kind and name. If it does not exist, creates it.
  PrincipalRef Get(Principal::Kind kind, absl::string_view name);

  // Returns the principals that exist.
  std::vector<PrincipalRef> All();

  // Returns the counters of the principals, and of those that no longer exist.
  PrincipalCountersTable& counters() { return counters_; }

 private:
  const std::shared_ptr<Principal::Shared> shared_;

  // Removes the entries of principals that no longer exist. Runs when the table has doubled.
  void SweepLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  PrincipalCountersTable counters_;
  Mutex mu_;
  absl::flat_hash_map<std::pair<Principal::Kind, std::string>, std::weak_ptr<const Principal>>
      principals_ ABSL_GUARDED_BY(mu_);
  size_t sweep_at_ ABSL_GUARDED_BY(mu_) = 64;
};

}  // namespace tensord::server
