// Who a call is made for. Sessions belong to principals.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "tensord/common/mutex.h"
#include "tensord/server/device/memory_account.h"

namespace tensord::server {

// Its name never changes. One object for each kind and name while anybody holds it, so that what is
// counted by principal is counted on it, and two are the same where their addresses are. A
// PrincipalTable alone makes them, and the daemon's table is the gate's (server/rpc/gate.h):
// whoever has one came from there.
class Principal {
 public:
  // How it showed who it is. The same name by two ways is two principals: who gives out tokens
  // needn't be who signs certificates.
  enum class Kind { kAnonymous, kToken, kCertificate };

  Kind kind() const { return kind_; }
  // A token's as in the token file, a certificate's with what it is: "cn:alice", "dns:box",
  // "uri:…".
  const std::string& name() const { return name_; }

  // How much of a busy device it gets, in proportion to others: 1 to 1000. Changes with the token
  // file.
  const std::atomic<int>& weight() const { return weight_; }
  void SetWeight(int weight) const {
    if (weight != weight_) weight_ = weight;
  }

  // What it has in use, over all its sessions, of what is limited by principal. Where there is no
  // limit nothing is counted, but for sessions, tickets and pulls.
  Usage& sessions() const { return sessions_; }
  Usage& handles() const { return handles_; }
  Usage& upload_bytes() const { return upload_bytes_; }
  Usage& tickets() const { return tickets_; }
  Usage& pulls() const { return pulls_; }
  // On a device by its index. Thread-safe; good for as long as the principal.
  Usage& device_bytes(int device) const;

 private:
  friend class PrincipalTable;
  Principal(Kind kind, absl::string_view name) : kind_(kind), name_(name) {}

  const Kind kind_;
  const std::string name_;
  mutable std::atomic<int> weight_{1};
  mutable Usage sessions_;
  mutable Usage handles_;
  mutable Usage upload_bytes_;
  mutable Usage tickets_;
  mutable Usage pulls_;
  mutable Mutex mu_;
  mutable std::deque<Usage> device_bytes_ ABSL_GUARDED_BY(mu_);  // never shrinks, nor moves
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
