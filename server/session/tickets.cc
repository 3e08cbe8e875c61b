#include "tensord/server/session/tickets.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/session/session_table.h"

namespace tensord::server {
namespace {

// A ticket is its id and a signature of this length.
constexpr size_t kSignatureBytes = 32;

absl::Status Refused() {
  return WithErrorInfo(
      absl::PermissionDeniedError(
          "the ticket isn't valid here: it has expired, was used or altered, or was issued by "
          "another server, for another destination, or for another caller; request a new one"),
      "TICKET_REFUSED");
}

// Appends the part with its length, so that different lists of parts give different texts.
void AppendPart(absl::string_view part, std::string* out) {
  absl::StrAppend(out, part.size(), ":", part);
}

}  // namespace

absl::string_view KindName(Principal::Kind kind) {
  switch (kind) {
    case Principal::Kind::kAnonymous:
      return "anonymous";
    case Principal::Kind::kToken:
      return "token";
    case Principal::Kind::kCertificate:
      return "certificate";
  }
  return "";
}

Tickets::Tickets(LeaseClock clock) : clock_(clock), key_(absl::StrCat(RandomId(), RandomId())) {}

std::string Tickets::Sign(absl::string_view id, const Ticket& ticket,
                          absl::string_view destination_epoch, absl::string_view kind,
                          absl::string_view name) const {
  std::string claims = "tensord ticket 1 ";
  for (const absl::string_view part :
       {id, absl::string_view(ticket.session_id), destination_epoch, kind, name}) {
    AppendPart(part, &claims);
  }
  AppendPart(absl::StrCat(ticket.handle), &claims);
  std::string signature(kSignatureBytes, '\0');
  unsigned int size = 0;
  HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
       reinterpret_cast<const unsigned char*>(claims.data()), claims.size(),
       reinterpret_cast<unsigned char*>(signature.data()), &size);
  return signature;
}

absl::StatusOr<std::string> Tickets::Issue(const SessionRef& session, TensorRef tensor,
                                           absl::string_view destination_epoch) {
  const PrincipalRef& principal = session->principal();
  TENSORD_ASSIGN_OR_RETURN(Charge counted, ChargeTo(principal, PrincipalLimit::kTickets));
  Charge charge(session->host_budget());
  TENSORD_RETURN_IF_ERROR(charge.Add(kHostBytes));
  Ticket ticket{.principal = principal,
                .session = session.get(),
                .session_id = session->id(),
                .handle = tensor->handle(),
                .expires_at = clock_() + kLifetime,
                .counted = std::move(counted),
                .charge = std::move(charge)};
  ticket.tensor = std::move(tensor);
  const std::string id = RandomId();
  std::string text = absl::StrCat(
      id, Sign(id, ticket, destination_epoch, KindName(principal->kind()), principal->name()));
  MutexLock lock(&mu_);
  // If the session is closed after this check, EndOf() runs after the insertion and removes the
  // ticket.
  if (session->closed()) {
    return SessionEndedError();
  }
  tickets_.emplace(id, std::move(ticket));
  return text;
}

absl::StatusOr<Tickets::TicketMap::iterator> Tickets::FindLocked(absl::string_view text,
                                                                 const Claim& claim) {
  if (text.size() <= kSignatureBytes || claim.pull_id.size() != kPullIdBytes) return Refused();
  const absl::string_view id = text.substr(0, text.size() - kSignatureBytes);
  const absl::string_view signature = text.substr(id.size());
  const auto found = tickets_.find(id);
  if (found == tickets_.end()) return Refused();
  const Ticket& ticket = found->second;
  const std::string expected =
      Sign(id, ticket, claim.destination_epoch, claim.principal_kind, claim.principal_name);
  if (CRYPTO_memcmp(signature.data(), expected.data(), kSignatureBytes) != 0) return Refused();
  if (ticket.uses == 0 && clock_() > ticket.expires_at) return Refused();
  if (!ticket.pull_id.empty() && ticket.pull_id != claim.pull_id) return Refused();
  return found;
}

absl::StatusOr<std::unique_ptr<Tickets::Use>> Tickets::Begin(absl::string_view text,
                                                             const Claim& claim) {
  MutexLock lock(&mu_);
  TENSORD_ASSIGN_OR_RETURN(const TicketMap::iterator found, FindLocked(text, claim));
  Ticket& ticket = found->second;
  TensorRef tensor = ticket.tensor != nullptr ? ticket.tensor : ticket.fetched.lock();
  if (tensor == nullptr) return Refused();
  ticket.pull_id = std::string(claim.pull_id);
  ++ticket.uses;
  return std::unique_ptr<Use>(
      new Use(this, found->first, ticket.session_id, ticket.principal, std::move(tensor)));
}

absl::Status Tickets::Release(absl::string_view text, const Claim& claim) {
  TensorRef released;  // destroyed after the lock: freeing memory may be slow
  MutexLock lock(&mu_);
  TENSORD_ASSIGN_OR_RETURN(const TicketMap::iterator found, FindLocked(text, claim));
  released = std::move(found->second.tensor);
  tickets_.erase(found);
  return absl::OkStatus();
}

void Tickets::End(const std::string& id, bool finished) {
  TensorRef released;  // destroyed after the lock: freeing memory may be slow
  MutexLock lock(&mu_);
  const auto found = tickets_.find(id);
  if (found == tickets_.end()) return;
  Ticket& ticket = found->second;
  --ticket.uses;
  ticket.expires_at = clock_() + kLifetime;
  if (!finished || ticket.tensor == nullptr) return;
  // The connection may break before the last bytes arrive. The pull may then reconnect while the
  // tensor exists.
  ticket.fetched = ticket.tensor;
  released = std::move(ticket.tensor);
  ticket.counted.Clear();
}

void Tickets::EndOf(const Session& session) {
  std::vector<TensorRef> released;
  MutexLock lock(&mu_);
  for (auto it = tickets_.begin(); it != tickets_.end();) {
    const auto at = it++;
    if (at->second.session != &session) continue;
    released.push_back(std::move(at->second.tensor));
    tickets_.erase(at);
  }
}

void Tickets::EndExpired() {
  std::vector<TensorRef> released;
  MutexLock lock(&mu_);
  const auto now = clock_();
  for (auto it = tickets_.begin(); it != tickets_.end();) {
    const auto at = it++;
    if (at->second.uses > 0 || now <= at->second.expires_at) continue;
    released.push_back(std::move(at->second.tensor));
    tickets_.erase(at);
  }
}

}  // namespace tensord::server
