#include "tensord/server/rpc/shared_rings.h"

#include <grpcpp/server_context.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_macros.h"

namespace tensord::server {
namespace {

// Rings at once: they are memory besides the devices'.
constexpr int kMaxRings = 32;
constexpr int kMaxRingsPerSession = 2;

}  // namespace

SharedRings::Ring::~Ring() { rings_->Leave(this); }

absl::StatusOr<std::unique_ptr<SharedRings::Ring>> SharedRings::Open(SessionRef session,
                                                                     grpc::ServerContext* call) {
  if (!available()) return absl::FailedPreconditionError("the server shares no memory");
  std::unique_ptr<Ring> ring(new Ring());
  ring->rings_ = this;
  ring->call_ = call;
  ring->session_ = std::move(session);
  TENSORD_RETURN_IF_ERROR(Enter(ring.get()));
  TENSORD_ASSIGN_OR_RETURN(ring->region_, SharedRegion::Make(kSharedSlots * kSharedSlotBytes));
  ring->secret_ = broker_.Offer(ring->region_);
  return ring;
}

absl::Status SharedRings::Enter(Ring* ring) {
  MutexLock lock(&mu_);
  if (draining_) return absl::UnavailableError("the server is shutting down");
  const auto of_session = std::count_if(rings_.begin(), rings_.end(), [&](const auto& other) {
    return other.second == ring->session_.get();
  });
  if (of_session >= kMaxRingsPerSession || rings_.size() >= kMaxRings) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", rings_.size(), " rings of shared memory, ", of_session,
                     " of them this session's; at most ", kMaxRings, " and ", kMaxRingsPerSession,
                     ": use Write and Read"));
  }
  rings_.emplace(ring, ring->session_.get());
  return absl::OkStatus();
}

void SharedRings::Leave(Ring* ring) {
  if (!ring->secret_.empty()) broker_.Withdraw(ring->secret_);
  MutexLock lock(&mu_);
  rings_.erase(ring);
}

void SharedRings::Drain() {
  MutexLock lock(&mu_);
  draining_ = true;
  for (const auto& [ring, session] : rings_) ring->call_->TryCancel();
}

void SharedRings::Sweep() {
  MutexLock lock(&mu_);
  for (const auto& [ring, session] : rings_) {
    if (session->closed()) ring->call_->TryCancel();
  }
}

}  // namespace tensord::server
