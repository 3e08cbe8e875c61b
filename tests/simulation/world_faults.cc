// The faults of a World.
#include <chrono>
#include <memory>
#include <utility>

#include "tensord/tests/simulation/world.h"

namespace tensord::simulation {

using server::SessionRef;
using std::chrono::milliseconds;

void World::InjectFault() {
  const auto now = [this](int64_t rate) { return random_.OneIn(rate); };
  if (now(plan_.breaks)) BreakOne();
  if (now(plan_.upload_breaks) && !uploads_.empty()) random_.Pick(uploads_)->Break();
  if (now(plan_.upload_breaks) && !reads_.empty()) random_.Pick(reads_)->Break();
  if (now(plan_.upload_drops) && !uploads_.empty()) {
    const UploadCall& upload = *random_.Pick(uploads_);
    ActorOf(upload).script->Drop(upload.value());
  }
  if (now(plan_.long_pauses)) Pass(milliseconds(random_.Below(2000 * plan_.lease_seconds)));
  if (random_.OneIn(30)) EndLeases();
  if (now(plan_.failing_allocations)) {
    const int device = static_cast<int>(random_.Below(Host::kDevices));
    if (!host_.faults(device).Apply(absl::StrCat("alloc ", 1 + random_.Below(6))).ok()) {
      trace_->Fail("the fault plan rejects a command");
    }
  }
  if (now(plan_.device_blocks)) host_.BlockDevice(static_cast<int>(random_.Below(Host::kDevices)));
  if (now(plan_.restarts)) Restart();
  if (now(plan_.drains)) Drain();
  if (now(plan_.crashes)) EndClient(*random_.Pick(actors_), /*in_good_order=*/false);
  if (now(plan_.closings)) EndClient(*random_.Pick(actors_), /*in_good_order=*/true);
  if (now(plan_.takeovers)) TakeOverSession();
}

void World::BreakOne() {
  if (connections_.empty()) return;
  Connection& c = connections_[random_.Below(static_cast<int64_t>(connections_.size()))];
  if (c.link->broken) return;
  trace_->Note("a connection breaks");
  ++counts_.breaks;
  c.link->Break(&random_);
}

void World::Pass(milliseconds time) {
  Clock::Advance(time);
  for (const auto& actor : actors_) actor->client->EndIfLeaseExpired();
}

void World::EndLeases() {
  const std::vector<SessionRef> before = host_.sessions().All();
  host_.sessions().EndExpired();
  for (const SessionRef& session : before) {
    const bool due = leases_.Due(*session);
    if (due != session->closed()) {
      trace_->Fail("a session's lease has ", due ? "" : "not ", "expired, but the session is ",
                   due ? "open" : "closed");
    }
    if (!due) continue;
    trace_->Note("the lease of session ", session->number(), " ends");
    ++counts_.leases_ended;
    leases_.Closed(session.get());
  }
}

void World::Restart() {
  trace_->Note("the server restarts");
  ++counts_.restarts;
  ++epoch_;
  for (Connection& c : connections_) {
    c.link->Break(&random_);
    c.link->to_server.clear();
    c.server = nullptr;
  }
  for (const auto& upload : uploads_) upload->OnServerLost();
  uploads_.clear();
  reads_.clear();
  host_.Stop();
  leases_ = LeaseBook();
  host_.Start();
}

void World::Drain() {
  trace_->Note("the server shuts down");
  for (Connection& c : connections_) {
    if (c.server != nullptr && !c.server->detached()) c.server->Drain();
  }
  for (int i = static_cast<int>(random_.Below(400)); i > 0; --i) RandomTransport();
  Restart();
}

void World::EndClient(Actor& actor, bool in_good_order) {
  ClientEnd& client = *actor.client;
  if (client.over()) return;
  trace_->Note(client.name(), in_good_order ? " closes" : " dies");
  if (client.link() != nullptr) client.link()->Break(&random_);
  client.Close();
  if (!in_good_order) return;
  const SessionRef session = actor.session.lock();
  const bool there = session != nullptr && !session->closed();
  const absl::StatusOr<int64_t> closed =
      host_.sessions().Close(host_.Principal(client.options().principal), client.options().session);
  const bool lost = actor.epoch != epoch_;
  if (closed.ok() != there || (lost && !absl::IsDataLoss(closed.status()))) {
    trace_->Fail("CloseSession returns ", closed.status().ToString());
  }
  if (there) leases_.Closed(session.get());
}

// Attaches another connection of the same principal to a client's session. It sends no commands.
// Also checks that another principal can't use the session.
void World::TakeOverSession() {
  Actor& actor = *random_.Pick(actors_);
  const ClientEnd::Options& of = actor.client->options();
  if (actor.client->over() || actor.client->link() == nullptr) return;
  const auto other = host_.sessions().Use(host_.Principal(plan_.principals), of.session);
  if (other.ok()) return trace_->Fail("another principal can use a session");
  trace_->Note("another connection takes over the session of ", actor.client->name());
  actor.session_taken_over = true;
  auto link = std::make_shared<Link>(&random_);
  v1::SessionStreamRequest request;
  request.mutable_attach()->set_session(of.session);
  request.mutable_attach()->set_resumable(true);
  link->Send(&link->to_server, request.SerializeAsString());
  connections_.push_back(
      {link,
       std::make_shared<ServerEnd>(host_.context(), host_.Principal(of.principal), link, &leases_,
                                   trace_),
       nullptr});
}

}  // namespace tensord::simulation
