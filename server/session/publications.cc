#include "tensord/server/session/publications.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/ops/op_inference.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server {
namespace {

// Returns the name by which other principals refer to a principal. A certificate's name contains a
// colon, a token's name contains none, and the anonymous name begins with one. So names never
// collide.
std::string IdOf(const Principal& principal) {
  return principal.kind() == Principal::Kind::kAnonymous ? ":anonymous" : principal.name();
}

absl::Status CheckName(absl::string_view name) {
  const bool good = !name.empty() && name.size() <= Publications::kMaxNameBytes &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '/' || c == '-';
                    });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a tensor can't be published as ", QuotedForMessage(name), ": its name must have 1 to ",
      Publications::kMaxNameBytes, " letters, digits and \"._/-\""));
}

absl::Status CheckReaders(const std::vector<std::string>& readers) {
  if (readers.size() > Publications::kMaxReaders) {
    return absl::InvalidArgumentError(
        absl::StrCat(readers.size(), " principals are named; at most ", Publications::kMaxReaders));
  }
  for (const std::string& reader : readers) {
    if (!reader.empty() && reader.size() <= Publications::kMaxReaderBytes) continue;
    return absl::InvalidArgumentError(absl::StrCat("the name of a principal has 1 to ",
                                                   Publications::kMaxReaderBytes, " bytes, not ",
                                                   reader.size()));
  }
  return absl::OkStatus();
}

absl::Status NothingPublished() {
  return WithErrorInfo(
      absl::NotFoundError(
          "no tensor of this name is published to the caller: it was never published, was "
          "unpublished, or its session has ended"),
      "PUBLICATION_NOT_FOUND");
}

}  // namespace

absl::StatusOr<Charge> Publications::ChargeFor(const Session& session, const Key& key,
                                               const std::vector<std::string>& readers) {
  constexpr int64_t kEntryBytes = 512, kReaderBytes = 64;
  auto bytes = static_cast<int64_t>(kEntryBytes + key.first.size() + key.second.size());
  for (const std::string& reader : readers) {
    bytes += kReaderBytes + static_cast<int64_t>(reader.size());
  }
  Charge charge(session.host_budget());
  TENSORD_RETURN_IF_ERROR(charge.Add(bytes + Tensor::kHostBytes));
  return charge;
}

absl::Status Publications::Publish(const SessionRef& session, absl::string_view name,
                                   TensorRef tensor, std::vector<std::string> readers) {
  TENSORD_RETURN_IF_ERROR(CheckName(name));
  TENSORD_RETURN_IF_ERROR(CheckReaders(readers));
  const PrincipalRef& owner = session->principal();
  const Key key(IdOf(*owner), std::string(name));
  TENSORD_ASSIGN_OR_RETURN(Charge charge, ChargeFor(*session, key, readers));
  MutexLock lock(&mu_);
  // If the session is closed after this check, EndOf() runs after the insertion and removes the
  // entry.
  if (session->closed()) {
    return SessionEndedError();
  }
  const auto found = publications_.find(key);
  if (found != publications_.end()) {
    if (found->second.tensor != tensor) {
      return absl::AlreadyExistsError(
          absl::StrCat("another tensor is published as ", name, "; unpublish that one first"));
    }
    found->second.readers = std::move(readers);
    found->second.charge = std::move(charge);
    return absl::OkStatus();
  }
  TENSORD_ASSIGN_OR_RETURN(Charge counted, ChargeTo(owner, PrincipalLimit::kPublished));
  publications_.emplace(key,
                        Publication{owner, session.get(), std::move(tensor), std::move(readers),
                                    std::move(charge), std::move(counted)});
  return absl::OkStatus();
}

absl::StatusOr<TensorRef> Publications::Find(const PrincipalRef& caller, absl::string_view owner,
                                             absl::string_view name) const {
  const Key key(owner.empty() ? IdOf(*caller) : std::string(owner), std::string(name));
  MutexLock lock(&mu_);
  const auto found = publications_.find(key);
  if (found == publications_.end()) return NothingPublished();
  const Publication& publication = found->second;
  const auto& readers = publication.readers;
  const bool allowed = publication.owner == caller ||
                       std::find(readers.begin(), readers.end(), IdOf(*caller)) != readers.end();
  if (!allowed) return NothingPublished();
  return publication.tensor;
}

absl::Status Publications::Unpublish(const PrincipalRef& principal, absl::string_view name) {
  TensorRef released;  // destroyed after the lock: freeing memory may be slow
  MutexLock lock(&mu_);
  const auto found = publications_.find(Key(IdOf(*principal), std::string(name)));
  if (found == publications_.end() || found->second.owner != principal) return NothingPublished();
  released = std::move(found->second.tensor);
  publications_.erase(found);
  return absl::OkStatus();
}

void Publications::EndOf(const Session& session) {
  std::vector<TensorRef> released;
  MutexLock lock(&mu_);
  for (auto it = publications_.begin(); it != publications_.end();) {
    const auto at = it++;
    if (at->second.session != &session) continue;
    released.push_back(std::move(at->second.tensor));
    publications_.erase(at);
  }
}

}  // namespace tensord::server
