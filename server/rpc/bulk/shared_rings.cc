#include "tensord/server/rpc/bulk/shared_rings.h"

#include <grpcpp/server_context.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server {
namespace {

constexpr int kMaxRingsPerSession = 2;

}  // namespace

SharedRings::Ring::~Ring() { rings_->Remove(this); }

void SharedRings::Close(std::unique_ptr<Ring> ring) {
  if (!ring->region_->memory().prepared()) return;
  {
    MutexLock lock(&mu_);
    ring->call_ = nullptr;  // the call may end before the ring
    ring->session_.reset();
  }
  closer_.Post(nullptr,
               [closed = std::shared_ptr<Ring>(std::move(ring))]() mutable { closed.reset(); });
}

void SharedRings::Ring::Describe(v1::SharedRing* ring) const {
  ring->set_socket_name(rings_->broker_.socket_name());
  ring->set_secret(secret_);
  ring->set_slot_bytes(slot_bytes_);
  ring->set_slots(slots_);
}

absl::StatusOr<std::unique_ptr<SharedRings::Ring>> SharedRings::Open(SessionRef session,
                                                                     grpc::ServerContext* call) {
  std::unique_ptr<Ring> ring(new Ring(kSharedSlotBytes, kSharedSlots));
  ring->owner_ = session->id();
  ring->principal_ = session->principal();
  ring->call_ = call;
  ring->session_ = std::move(session);
  return Open(std::move(ring));
}

absl::StatusOr<std::unique_ptr<SharedRings::Ring>> SharedRings::OpenForFetch(
    const std::string& session_id, PrincipalRef principal) {
  std::unique_ptr<Ring> ring(new Ring(kFetchSlotBytes, kFetchSlots));
  ring->owner_ = session_id;
  ring->principal_ = std::move(principal);
  ring->for_fetch_ = true;
  return Open(std::move(ring));
}

absl::StatusOr<std::unique_ptr<SharedRings::Ring>> SharedRings::Open(std::unique_ptr<Ring> ring) {
  ring->rings_ = this;
  if (!available()) return absl::FailedPreconditionError("the server shares no memory");
  TENSORD_RETURN_IF_ERROR(Add(ring.get()));
  TENSORD_ASSIGN_OR_RETURN(ring->region_, SharedRegion::Make(ring->slots_ * ring->slot_bytes_));
  ring->secret_ = broker_.Offer(ring->region_);
  return ring;
}

absl::Status SharedRings::Add(Ring* ring) {
  MutexLock lock(&mu_);
  if (draining_) return absl::UnavailableError("the server is shutting down");
  const auto of_session = std::count_if(rings_.begin(), rings_.end(), [&](const Ring* other) {
    return other->owner_ == ring->owner_ && other->for_fetch_ == ring->for_fetch_;
  });
  const auto of_principal = std::count_if(rings_.begin(), rings_.end(), [&](const Ring* other) {
    return other->principal_ == ring->principal_;
  });
  // One authenticated principal can't use up all rings. All anonymous callers are one principal.
  const bool is_anonymous = ring->principal_->kind() == Principal::Kind::kAnonymous;
  const int max_of_principal = is_anonymous ? max_rings_ : max_rings_ / 2;
  if (of_session >= kMaxRingsPerSession || of_principal >= max_of_principal ||
      static_cast<int>(rings_.size()) >= max_rings_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the server has ", rings_.size(), " rings of shared memory (at most ", max_rings_,
        "), this caller ", of_principal, " (at most ", max_of_principal, "), this session ",
        of_session, " (at most ", kMaxRingsPerSession, "): use Write and Read"));
  }
  rings_.insert(ring);
  return absl::OkStatus();
}

void SharedRings::Remove(Ring* ring) {
  if (!ring->secret_.empty()) broker_.Withdraw(ring->secret_);
  ring->region_.reset();  // unmaps the memory before another ring may be opened
  MutexLock lock(&mu_);
  rings_.erase(ring);
}

void SharedRings::Drain() {
  MutexLock lock(&mu_);
  draining_ = true;
}

void SharedRings::Sweep() {
  MutexLock lock(&mu_);
  for (const Ring* ring : rings_) {
    if (ring->call_ != nullptr && ring->session_->closed()) ring->call_->TryCancel();
  }
}

}  // namespace tensord::server
