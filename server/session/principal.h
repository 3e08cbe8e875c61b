// Who a call is made for. Sessions belong to principals.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "tensord/common/mutex.h"

namespace tensord::server {

// Immutable. One object for each kind and name while anybody holds it, so that what is counted by
// principal is counted on it, and two are the same where their addresses are. A PrincipalTable
// alone makes them, and the daemon's table is the gate's (server/rpc/gate.h): whoever has one came
// from there.
class Principal {
 public:
  // How it showed who it is. The same name by two ways is two principals: who gives out tokens
  // needn't be who signs certificates.
  enum class Kind { kAnonymous, kToken, kCertificate };

  Kind kind() const { return kind_; }
  // A token's as in the token file, a certificate's with what it is: "cn:alice", "dns:box",
  // "uri:…".
  const std::string& name() const { return name_; }

 private:
  friend class PrincipalTable;
  Principal(Kind kind, absl::string_view name) : kind_(kind), name_(name) {}

  const Kind kind_;
  const std::string name_;
};

using PrincipalRef = std::shared_ptr<const Principal>;

// Thread-safe.
class PrincipalTable {
 public:
  PrincipalRef Get(Principal::Kind kind, absl::string_view name);

 private:
  // Those that nobody holds any more are swept out when the table has doubled.
  void SweepLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  absl::flat_hash_map<std::pair<Principal::Kind, std::string>, std::weak_ptr<const Principal>>
      principals_ ABSL_GUARDED_BY(mu_);
  size_t sweep_at_ ABSL_GUARDED_BY(mu_) = 64;
};

}  // namespace tensord::server
