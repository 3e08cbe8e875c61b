#include "tensord/server/session/principal.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "tensord/common/util/status_macros.h"
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
  MutexLock lock(&mu_);
  for (size_t i = 0; i < kPrincipalLimits.size(); ++i) {
    const absl::string_view name = kPrincipalLimits[i].name;
    if (!own_limits_[i].has_value() || flag != absl::StrCat(name, "-per-principal")) continue;
    return absl::StrCat("the server's token file: ", name_, ", ", name);
  }
  return "";
}

// What the principals of one table have in common.
struct Principal::Shared {
  explicit Shared(const Limits& limits)
      : limits(limits),
        host_bytes(NewBudget(limits.max_host_bytes)),
        request_bytes(NewBudget(limits.max_request_bytes)),
        response_bytes(NewBudget(limits.max_response_bytes)) {}

  static BudgetRef NewBudget(int64_t limit) {
    return std::make_shared<Budget>(limit == 0 ? Budget::kUnlimited : limit);
  }
  // Returns the budget of all principals together, or null if there is none.
  BudgetRef Of(PrincipalLimit which) const {
    if (which == PrincipalLimit::kHostBytes) return host_bytes;
    if (which == PrincipalLimit::kRequestBytes) return request_bytes;
    return which == PrincipalLimit::kResponseBytes ? response_bytes : nullptr;
  }

  const Limits limits;
  const BudgetRef host_bytes;
  const BudgetRef request_bytes;
  const BudgetRef response_bytes;
  ChargeQueue response_queue;
};

namespace {

// A limit of a principal on the server's side.
struct ServerLimit {
  int64_t Limits::*of_flag;
  absl::string_view reason;
  // $0 is the amount that is refused, $1 the amount in use, $2 the default lease in seconds.
  absl::string_view message;
};

// Indexed by PrincipalLimit. Those without a reason refuse nothing here.
constexpr std::array<ServerLimit, kPrincipalLimits.size()> kServerLimits = {{
    {&Limits::max_bytes_per_principal, "", ""},
    {&Limits::max_sessions_per_principal, "PRINCIPAL_SESSIONS_EXCEEDED",
     "the caller has reached its limit of sessions; close one, or wait: if a program ended without "
     "closing its session, the session ends when its lease runs out, after $2 s unless the client "
     "chose another lease"},
    {&Limits::max_handles_per_principal, "PRINCIPAL_HANDLES_EXCEEDED",
     "the caller's sessions hold as many tensors as the limit allows; delete some"},
    {&Limits::max_host_bytes_per_principal, "PRINCIPAL_HOST_BYTES_EXCEEDED", ""},
    {&Limits::max_upload_bytes_per_principal, "PRINCIPAL_UPLOAD_BYTES_EXCEEDED",
     "an upload of $0 bytes is refused: $1 bytes of the caller's uploads are active or "
     "interrupted; finish those uploads, or drop their handles"},
    {&Limits::max_published_per_principal, "PRINCIPAL_PUBLICATIONS_EXCEEDED",
     "the caller has published as many tensors as the limit allows; unpublish some"},
    {&Limits::max_tickets_per_principal, "PRINCIPAL_TICKETS_EXCEEDED",
     "the caller has as many outstanding tickets as the limit allows; have their tensors fetched, "
     "or wait until they expire"},
    {&Limits::max_pulls_per_principal, "PRINCIPAL_PULLS_EXCEEDED",
     "the caller has as many pulls from other servers under way as the limit allows; wait for "
     "some"},
    {&Limits::max_group_members_per_principal, "PRINCIPAL_GROUP_MEMBERS_EXCEEDED",
     "the caller's sessions have as many group members as the limit allows; call LeaveGroup for "
     "those that aren't needed"},
    {&Limits::max_connections_per_principal, "PRINCIPAL_CONNECTIONS_EXCEEDED",
     "the caller has as many connections as the limit allows; share one between threads, or close "
     "some"},
    {&Limits::max_request_bytes_per_principal, "", ""},
    {&Limits::max_response_bytes_per_principal, "", ""},
}};

std::string HostBytesMessage(const Budget& full, const Budget& own, int64_t bytes) {
  const bool principal = &full == &own;
  if (!principal && full.limit() == 0) {  // MemoryReserve
    return "the server's process has run out of memory; it refuses new work until memory is free, "
           "and has set its limit of host memory to 0 until then; delete tensors, or try again "
           "later";
  }
  const int64_t others = std::max<int64_t>(0, own.parent()->used() - own.used());
  return absl::StrCat(principal ? "the caller's" : "the server's",
                      " limit of host memory for handles, programs, open calls, connections and so "
                      "on is reached: the request needs ",
                      bytes, " bytes; the caller holds ", own.used(),
                      " bytes, and all other callers ", others, " bytes; ",
                      principal || own.used() > others
                          ? "delete tensors, drop programs, end calls, or close sessions or "
                            "connections"
                          : "try again later, or delete tensors");
}

}  // namespace

Principal::Principal(Kind kind, absl::string_view name, PrincipalCountersRef counters,
                     std::shared_ptr<Shared> shared)
    : kind_(kind), name_(name), counters_(std::move(counters)), shared_(std::move(shared)) {
  for (size_t i = 0; i < kPrincipalLimits.size(); ++i) {
    const auto which = static_cast<PrincipalLimit>(i);
    budgets_.emplace_back(LimitOf(which, std::nullopt), shared_->Of(which),
                          [this, which](const Budget& full, int64_t amount) {
                            return RefuseAt(which, full, amount);
                          });
  }
}

int64_t Principal::LimitOf(PrincipalLimit which, std::optional<int64_t> own) const {
  const Limits& limits = shared_->limits;
  const int64_t limit = own.value_or(limits.*kServerLimits[static_cast<size_t>(which)].of_flag);
  // A message of any size that is allowed can be received.
  if (which == PrincipalLimit::kRequestBytes && limit != 0) {
    return std::max(limit, 2 * limits.max_message_bytes);
  }
  return limit == 0 && which != PrincipalLimit::kPublished ? Budget::kUnlimited : limit;
}

void Principal::SetLimits(const PrincipalLimits& limits) const {
  MutexLock lock(&mu_);
  if (own_limits_ == limits) return;
  own_limits_ = limits;
  for (size_t i = 0; i < limits.size(); ++i) {
    budgets_[i].SetLimit(LimitOf(static_cast<PrincipalLimit>(i), limits[i]));
  }
  for (Budget& bytes : device_bytes_) bytes.SetLimit(budget(PrincipalLimit::kBytes).limit());
}

absl::Status Principal::RefuseAt(PrincipalLimit which, const Budget& full, int64_t amount) const {
  const auto index = static_cast<size_t>(which);
  const bool of_principal = &full == &budget(which);
  const absl::string_view name = kPrincipalLimits[index].name;
  const std::string flag = of_principal ? absl::StrCat(name, "-per-principal") : std::string(name);
  return Refuse(
      {.reason = of_principal ? kServerLimits[index].reason : "SERVER_HOST_BYTES_EXCEEDED",
       .subject = of_principal ? "principal" : "server",
       .limit = flag,
       .value = full.limit(),
       .message = which == PrincipalLimit::kHostBytes
                      ? HostBytesMessage(full, budget(which), amount)
                      : absl::Substitute(kServerLimits[index].message, amount, full.used(),
                                         shared_->limits.default_lease_seconds)});
}

Budget& Principal::device_bytes(int device) const {
  MutexLock lock(&mu_);
  while (device_bytes_.size() <= static_cast<size_t>(device)) {
    device_bytes_.emplace_back(budget(PrincipalLimit::kBytes).limit());
  }
  return device_bytes_[device];
}

ChargeQueue& Principal::response_queue() const { return shared_->response_queue; }

absl::StatusOr<Charge> ChargeTo(const PrincipalRef& principal, PrincipalLimit which,
                                int64_t amount) {
  Charge charge(BudgetOf(principal, which));
  TENSORD_RETURN_IF_ERROR(charge.Add(amount));
  return charge;
}

PrincipalTable::PrincipalTable(const Limits& limits)
    : shared_(std::make_shared<Principal::Shared>(limits)) {}

const BudgetRef& PrincipalTable::host_budget() const { return shared_->host_bytes; }

PrincipalRef PrincipalTable::Get(Principal::Kind kind, absl::string_view name) {
  MutexLock lock(&mu_);
  if (principals_.size() >= sweep_at_) SweepLocked();
  std::weak_ptr<const Principal>& known = principals_[{kind, std::string(name)}];
  PrincipalRef principal = known.lock();
  if (principal == nullptr) {
    principal =
        PrincipalRef(new Principal(kind, name, counters_.Get(UniqueName(kind, name)), shared_));
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
