#include "tensord/server/session/principal.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/util/utf8.h"

namespace tensord::server {
namespace {

constexpr size_t kMaxNameBytes = 256;

// Returns Principal::unique_name(). No name collides with "(anonymous)": names of tokens have no
// parentheses, and names of certificates begin with their kind.
std::string UniqueName(Principal::Kind kind, absl::string_view name) {
  if (kind == Principal::Kind::kAnonymous) return "(anonymous)";
  const std::string whole = ToUtf8(name, name.size());
  const bool fits = whole == name && name.size() <= kMaxNameBytes;
  if (fits && !absl::StrContains(name, '#')) return whole;
  // A name that is changed or cut has a hash at its end, so that it differs from all others. A
  // name that contains a # gets a hash, too, because it could be taken for a changed name.
  std::array<char, SHA256_DIGEST_LENGTH> hash;
  SHA256(reinterpret_cast<const unsigned char*>(name.data()), name.size(),
         reinterpret_cast<unsigned char*>(hash.data()));
  constexpr size_t kHashBytes = 16;
  return absl::StrCat(ToUtf8(name, kMaxNameBytes - 1 - 2 * kHashBytes), "#",
                      absl::BytesToHexString(absl::string_view(hash.data(), kHashBytes)));
}

}  // namespace

std::string Principal::unique_name() const { return UniqueName(kind_, name_); }

absl::Status Principal::Refuse(LimitReached reached) const {
  counters_->CountRefusal(reached.reason);
  reached.source = limit_source(reached.limit);
  return ToStatus(reached);
}

std::string Principal::limit_source(absl::string_view flag) const {
  for (size_t i = 0; i < kPrincipalLimits.size(); ++i) {
    const absl::string_view name = kPrincipalLimits[i].name;
    if (flag != absl::StrCat(name, "-per-principal")) continue;
    if (limits_[i].load(std::memory_order_relaxed) == kUnset) break;
    return absl::StrCat("the server's token file: ", name_, ", ", name);
  }
  return "";
}

void Principal::SetLimits(const PrincipalLimits& limits) const {
  for (size_t i = 0; i < limits.size(); ++i) {
    const int64_t limit = limits[i].value_or(kUnset);
    if (limits_[i].load(std::memory_order_relaxed) != limit) limits_[i] = limit;
  }
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

std::vector<PrincipalRef> PrincipalTable::All() {
  MutexLock lock(&mu_);
  std::vector<PrincipalRef> all;
  for (const auto& [key, weak] : principals_) {
    if (PrincipalRef principal = weak.lock()) all.push_back(std::move(principal));
  }
  return all;
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
