// The identity that a call is made for. Sessions belong to principals.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/mutex.h"
#include "tensord/common/util/principal_limits.h"
#include "tensord/server/device/memory_account.h"
#include "tensord/server/session/principal_counters.h"
#include "tensord/server/session/response_budget.h"

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

  // Returns the limit that the token file sets for the principal. If it sets none, returns
  // `server_limit`, the value of the server's flag. For most limits, 0 means no limit. A change of
  // the token file changes the result.
  int64_t limit(PrincipalLimit which, int64_t server_limit) const {
    const int64_t own = limits_[static_cast<size_t>(which)].load(std::memory_order_relaxed);
    return own == kUnset ? server_limit : own;
  }
  void SetLimits(const PrincipalLimits& limits) const;
  // `flag` is the name of a flag without its dashes. If the token file sets the limit of that flag
  // for the principal, returns LimitReached::source. Otherwise returns "".
  std::string limit_source(absl::string_view flag) const;
  // Returns whether the token file can set limits for this principal, now or later.
  bool can_have_own_limits() const { return kind_ == Kind::kToken; }

  // The usage of all its sessions together, one counter for each resource that has a limit per
  // principal. Handles and upload bytes are counted only if they have a limit or
  // can_have_own_limits(). The bytes on devices are counted, unless the principal is kAnonymous and
  // they have no limit.
  Usage& sessions() const { return sessions_; }
  Usage& handles() const { return handles_; }
  Usage& upload_bytes() const { return upload_bytes_; }
  Usage& tickets() const { return tickets_; }
  Usage& pulls() const { return pulls_; }
  Usage& published() const { return published_; }
  Usage& group_members() const { return group_members_; }
  Usage& host_bytes() const { return host_bytes_; }
  Usage& calls() const { return calls_; }  // open ones
  // Connections, each counted for the principal of its first call.
  Usage& connections() const { return connections_; }
  // Bytes of responses that clients haven't received.
  ResponseBudget& responses() const { return responses_; }
  // Bytes of requests that gRPC holds and no handler has received.
  Usage& request_bytes() const { return request_bytes_; }
  // Returns the usage of bytes on a device, by its index. Thread-safe. The reference is valid while
  // the principal exists.
  Usage& device_bytes(int device) const;

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
  static constexpr int64_t kUnset = -1;

  Principal(Kind kind, absl::string_view name, PrincipalCountersRef counters)
      : kind_(kind), name_(name), counters_(std::move(counters)) {
    SetLimits({});
  }

  const Kind kind_;
  const std::string name_;
  const PrincipalCountersRef counters_;
  mutable std::atomic<int> weight_{1};
  mutable std::array<std::atomic<int64_t>, kPrincipalLimits.size()> limits_;
  mutable Usage sessions_;
  mutable Usage handles_;
  mutable Usage upload_bytes_;
  mutable Usage tickets_;
  mutable Usage pulls_;
  mutable Usage published_;
  mutable Usage group_members_;
  mutable Usage host_bytes_;
  mutable Usage calls_;
  mutable Usage connections_;
  mutable Usage request_bytes_;
  mutable ResponseBudget responses_;
  mutable Mutex mu_;
  mutable std::deque<Usage> device_bytes_ ABSL_GUARDED_BY(mu_);  // grows only; elements don't move
};

using PrincipalRef = std::shared_ptr<const Principal>;

// Thread-safe.
class PrincipalTable {
 public:
  // Returns the principal of this kind and name. If it does not exist, creates it.
  PrincipalRef Get(Principal::Kind kind, absl::string_view name);

  // Returns the principals that exist.
  std::vector<PrincipalRef> All();

  // Returns the counters of the principals, and of those that no longer exist.
  PrincipalCountersTable& counters() { return counters_; }

 private:
  // Removes the entries of principals that no longer exist. Runs when the table has doubled.
  void SweepLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  PrincipalCountersTable counters_;
  Mutex mu_;
  absl::flat_hash_map<std::pair<Principal::Kind, std::string>, std::weak_ptr<const Principal>>
      principals_ ABSL_GUARDED_BY(mu_);
  size_t sweep_at_ ABSL_GUARDED_BY(mu_) = 64;
};

}  // namespace tensord::server
