// The invariants of a World.
#include <cstdint>
#include <set>

#include "tensord/tests/simulation/world.h"

namespace tensord::simulation {

using server::DeviceSlot;
using server::SessionRef;

void World::CheckUse(absl::string_view what, int64_t used, int64_t limit) {
  if (used < 0 || (limit != 0 && used > limit)) trace_->Fail(what, ": ", used, " of ", limit);
}

void World::CheckLimits() {
  const server::Limits& limits = plan_.host.limits;
  for (int i = 0; i < Host::kDevices; ++i) {
    CheckUse("bytes of a device", host_.UsedBytes(i), plan_.host.device_bytes);
  }
  CheckUse("sessions", static_cast<int64_t>(host_.sessions().All().size()), limits.max_sessions);
  for (int i = 0; i < plan_.principals; ++i) CheckPrincipal(host_.Principal(i));
}

void World::CheckPrincipal(const server::PrincipalRef& principal) {
  const server::Limits& limits = plan_.host.limits;
  int64_t sessions = 0;
  int64_t handles = 0;
  for (const SessionRef& session : host_.sessions().Of(principal)) {
    const auto own = static_cast<int64_t>(session->List(0, SIZE_MAX).size());
    ++sessions;
    handles += own;
    CheckUse("handles of a session", own, limits.max_handles_per_session);
    for (DeviceSlot* slot : host_.context()->engine->slots()) {
      CheckUse("bytes of a session", session->account(*slot).used_bytes(),
               limits.max_bytes_per_session);
    }
  }
  CheckUse("sessions of a principal", sessions, limits.max_sessions_per_principal);
  CheckUse("handles of a principal", handles, limits.max_handles_per_principal);
  CheckUse("uploads of a principal", principal->budget(PrincipalLimit::kUploadBytes).used(),
           limits.max_upload_bytes_per_principal);
  for (int i = 0; i < Host::kDevices; ++i) {
    CheckUse("bytes of a principal", principal->device_bytes(i).used(),
             limits.max_bytes_per_principal);
  }
  if (principal->budget(PrincipalLimit::kSessions).used() != sessions) {
    trace_->Fail(principal->budget(PrincipalLimit::kSessions).used(), " sessions are counted, not ",
                 sessions);
  }
  if (limits.max_handles_per_principal != 0 &&
      principal->budget(PrincipalLimit::kHandles).used() != handles) {
    trace_->Fail(principal->budget(PrincipalLimit::kHandles).used(), " handles are counted, not ",
                 handles);
  }
}

// Checks that all commands before an answered barrier have run.
void World::CheckAllDone(Actor& actor, uint64_t before_command) {
  const SessionRef session = actor.session.lock();
  if (session == nullptr || session->closed()) return;
  for (const ValueRef& value : actor.script->live()) {
    if (value->command > before_command) continue;
    const absl::StatusOr<server::TensorRef> tensor = session->Find(value->handle);
    if (tensor.ok() ? !(*tensor)->done() : value->error.ok()) {
      trace_->Fail(actor.client->name(), ": a barrier was answered before tensor ", value->handle,
                   tensor.ok() ? " was done" : " existed");
    }
  }
}

// Checks that something explains why a client's stream has ended.
void World::CheckEnds() {
  for (const auto& actor : actors_) {
    const ClientEnd& client = *actor->client;
    if (actor->checked || !client.over()) continue;
    actor->checked = true;
    if (client.closed()) continue;
    const absl::Status status = client.status();
    const SessionRef session = actor->session.lock();
    const bool gone = actor->epoch != epoch_ || session == nullptr || session->closed();
    bool explained = false;
    if (absl::IsDataLoss(status)) explained = gone;
    if (absl::IsUnavailable(status)) explained = client.draining() || client.lease_expired();
    if (absl::IsAborted(status)) explained = actor->session_taken_over;
    if (!explained) {
      trace_->Fail(client.name(), " has ended with ", status.ToString(), ", its session ",
                   gone ? "has ended" : "exists");
    }
  }
}

// Checks that the session holds the tensors that the client expects.
void World::CheckHandles(Actor& actor) {
  const ClientEnd& client = *actor.client;
  for (const auto& [id, pending] : client.pending()) {
    trace_->Fail(client.name(), ": pending answer ", id, " has no answer");
  }
  if (actor.client->queue().pushed() != client.received()) {
    trace_->Fail(client.name(), ": the server acknowledged ", client.received(), " commands of ",
                 actor.client->queue().pushed());
  }
  const SessionRef session = actor.session.lock();
  if (session == nullptr || session->closed()) {
    return trace_->Fail(client.name(), " works, but its session has ended");
  }
  std::set<uint64_t> held;
  for (const server::TensorRef& tensor : session->List(0, SIZE_MAX)) held.insert(tensor->handle());
  for (const ValueRef& value : actor.script->live()) {
    if (held.erase(value->handle) == 0 && value->error.ok()) {
      trace_->Fail(client.name(), ": tensor ", value->handle, " is missing");
    }
  }
  if (!held.empty()) {
    trace_->Fail(client.name(), ": tensor ", *held.begin(), " was dropped, but exists");
  }
}

// Call it when all clients have ended and all leases have expired.
void World::CheckNothingLeft() {
  const size_t sessions = host_.sessions().All().size();
  if (sessions != 0) trace_->Fail(sessions, " sessions still exist");
  for (int i = 0; i < Host::kDevices; ++i) {
    if (host_.UsedBytes(i) != 0) trace_->Fail(host_.UsedBytes(i), " bytes in use on cpu:", i);
  }
  for (int p = 0; p < plan_.principals; ++p) {
    const server::PrincipalRef principal = host_.Principal(p);
    int64_t left = principal->budget(PrincipalLimit::kSessions).used() +
                   principal->budget(PrincipalLimit::kHandles).used() +
                   principal->budget(PrincipalLimit::kUploadBytes).used();
    for (int i = 0; i < Host::kDevices; ++i) left += principal->device_bytes(i).used();
    if (left != 0) trace_->Fail("a principal still has charges");
  }
  connections_.clear();
  for (int p = 0; p < plan_.principals; ++p) {
    const int64_t bytes = host_.Principal(p)->budget(PrincipalLimit::kHostBytes).used();
    if (bytes != 0) trace_->Fail(bytes, " bytes of host memory are charged to a principal");
  }
  for (const auto& session : sessions_) {
    if (!session.expired()) trace_->Fail("a session isn't freed");
  }
}

}  // namespace tensord::simulation
