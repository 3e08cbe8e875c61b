#include "tensord/server/session/principal.h"

#include <algorithm>

#include "tensord/common/util/utf8.h"

namespace tensord::server {
namespace {

constexpr size_t kMaxNameBytes = 256;

// Names of tokens have no parentheses, and those of certificates begin with their kind.
std::string UniqueName(Principal::Kind kind, absl::string_view name) {
  if (kind == Principal::Kind::kAnonymous) return "(anonymous)";
  return ToUtf8(name, kMaxNameBytes);
}

}  // namespace

std::string Principal::unique_name() const { return UniqueName(kind_, name_); }

absl::Status Principal::Refuse(const LimitReached& reached) const {
  counters_->CountRefusal(reached.reason);
  return ToStatus(reached);
}

Usage& Principal::device_bytes(int device) const {
  MutexLock lock(&mu_);
  while (device_bytes_.size() <= static_cast<size_t>(device)) device_bytes_.emplace_back();
  return device_bytes_[device];
}

PrincipalRef PrincipalTable::Get(Principal::Kind kind, absl::string_view name) {
  MutexLock lock(&mu_);
  if (principals_.size() >= sweep_at_) SweepLocked();
  std::weak_ptr<const Principal>& known = principals_[{kind, std::string(name)}];
  PrincipalRef principal = known.lock();
  if (principal == nullptr) {
    principal = PrincipalRef(new Principal(kind, name, counters_.Get(UniqueName(kind, name))));
    known = principal;
  }
  return principal;
}

void PrincipalTable::SweepLocked() {
  for (auto it = principals_.begin(); it != principals_.end();) {
    if (it->second.expired()) {
      principals_.erase(it++);
    } else {
      ++it;
    }
  }
  sweep_at_ = std::max<size_t>(64, 2 * principals_.size());
}

}  // namespace tensord::server
