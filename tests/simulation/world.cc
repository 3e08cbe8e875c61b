#include "tensord/tests/simulation/world.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tensord/common/status_details.h"

namespace tensord::simulation {
namespace {

using server::SessionRef;
using std::chrono::milliseconds;

// More steps than any world needs. A world that takes more doesn't make progress.
constexpr int kMaxSteps = 4000;
constexpr int kMaxSettlingSteps = 20000;

}  // namespace

World::World(uint64_t seed, Trace* trace)
    : trace_(trace), random_(seed), plan_(MakePlan(&random_)), host_(plan_.host, trace) {
  Clock::Reset();
  host_.Start();
}

World::~World() {
  uploads_.clear();
  reads_.clear();
  connections_.clear();
  host_.Stop();
}

void World::Run() {
  OpenClient();
  for (; counts_.steps < kMaxSteps && !trace_->failed(); ++counts_.steps) {
    const bool working = std::any_of(actors_.begin(), actors_.end(), [](const auto& actor) {
      return actor->actions_left > 0 && !actor->client->over();
    });
    if (!working && static_cast<int>(actors_.size()) >= plan_.max_clients) break;
    Step();
    CheckLimits();
    CheckEnds();
  }
  injects_faults_ = false;
  if (!trace_->failed()) FinishPrograms();
  if (!trace_->failed()) EndClients();
  if (!trace_->failed()) CheckNothingLeft();
  for (const auto& actor : actors_) {
    counts_.commands += static_cast<int64_t>(actor->client->queue().pushed());
  }
}

void World::Step() {
  const int64_t what = random_.Below(100);
  if (what < 25) {
    ActOnce();
  } else if (what < 90) {
    RandomTransport();
  } else if (what < 96) {
    StepCalls();
  } else {
    Pass(milliseconds(random_.Below(30)));
  }
  InjectFault();
}

void World::ActOnce() {
  const bool more = static_cast<int>(actors_.size()) < plan_.max_clients;
  if (more && (random_.OneIn(20) || RandomClient() == nullptr)) return OpenClient();
  Actor& actor = *random_.Pick(actors_);
  if (actor.client->over() || actor.actions_left == 0) return;
  --actor.actions_left;
  acting_ = true;
  Act(actor);
  acting_ = false;
}

void World::Act(Actor& actor) {
  if (plan_.uploads && random_.OneIn(10)) {
    const ValueRef value = actor.script->Promise();
    if (value == nullptr) return;
    ++counts_.uploads;
    uploads_.push_back(std::make_unique<UploadCall>(
        host_.context(), host_.Principal(actor.client->options().principal), actor.client.get(),
        value, &leases_, &random_, trace_));
    return;
  }
  if (random_.OneIn(10)) return ReadBeside(actor);
  for (int64_t i = random_.Below(6); i >= 0; --i) actor.script->Act();
}

void World::ReadBeside(Actor& actor) {
  if (actor.script->live().empty()) return;
  const ValueRef value = random_.Pick(actor.script->live());
  if (value->upload) return;  // it may be dropped at any time
  reads_.push_back(std::make_unique<ReadCall>(host_.context(),
                                              host_.Principal(actor.client->options().principal),
                                              actor.client.get(), value, &leases_, trace_));
}

void World::OpenClient() {
  ClientEnd::Options options{.number = static_cast<int>(actors_.size()),
                             .principal = static_cast<int>(random_.Below(plan_.principals)),
                             .lease = std::chrono::seconds(plan_.lease_seconds),
                             .max_pending_commands = plan_.max_pending_commands,
                             .max_pending_bytes = plan_.max_pending_bytes,
                             .eager = plan_.eager};
  server::SessionTable& sessions = host_.sessions();
  const server::PrincipalRef principal = host_.Principal(options.principal);
  const server::Limits& limits = plan_.host.limits;
  const auto open = static_cast<int64_t>(sessions.All().size());
  const auto own = static_cast<int64_t>(sessions.Of(principal).size());
  const bool room = open < limits.max_sessions && (limits.max_sessions_per_principal == 0 ||
                                                   own < limits.max_sessions_per_principal);
  const absl::StatusOr<SessionRef> session = sessions.Open(principal, plan_.lease_seconds, "");
  if (session.ok() != room || (!room && !absl::IsResourceExhausted(session.status()))) {
    return trace_->Fail("OpenSession returns ", session.status().ToString(), " with ", open,
                        " open sessions, ", own, " of them the caller's");
  }
  if (!room) return EndLeases();
  options.session = (*session)->id();
  trace_->Note("client ", options.number, " of principal ", options.principal, " opens a session");
  leases_.Opened(session->get());
  sessions_.push_back(*session);
  auto actor = std::make_unique<Actor>();
  actor->client = std::make_unique<ClientEnd>(std::move(options), plan_.expected_errors, trace_);
  ClientEnd* client = actor->client.get();
  actor->script = std::make_unique<Script>(client, Host::kDevices, &random_, trace_);
  actor->session = *session;
  actor->epoch = epoch_;
  actor->actions_left = plan_.actions;
  client->queue().set_on_full([this, client] { MakeRoom(client); });
  client->set_on_barrier(
      [this, raw = actor.get()](uint64_t command) { CheckAllDone(*raw, command); });
  actors_.push_back(std::move(actor));
}

void World::Connect(ClientEnd* client) {
  auto link = std::make_shared<Link>(&random_);
  connections_.push_back(
      {link,
       std::make_shared<ServerEnd>(host_.context(), host_.Principal(client->options().principal),
                                   link, &leases_, trace_),
       client});
  trace_->Note("  ", client->name(), " connects");
  client->Connect(std::move(link));
}

ServerEnd::Deadline World::EndOfSlice() {
  return random_.OneIn(plan_.slices) ? ServerEnd::Deadline() : server::PackedOps::kNoDeadline;
}

bool World::DeliverToServer(Connection& c) {
  if (c.server == nullptr || !c.server->reading() || c.link->to_server.empty()) return false;
  const std::string message = std::move(c.link->to_server.front());
  c.link->to_server.pop_front();
  trace_->Note("  the server gets ", message.size(), " bytes", c.link->broken ? " late" : "",
               c.client == nullptr ? " of another connection" : "");
  c.server->OnMessage(message, EndOfSlice());
  if (c.server->applying()) ++counts_.interrupted;
  return true;
}

bool World::ContinueMessage(Connection& c) {
  if (c.server == nullptr || !c.server->applying()) return false;
  trace_->Note("  the server continues a message", c.link->broken ? " late" : "");
  c.server->Continue(EndOfSlice());
  return true;
}

bool World::DeliverToClient(Connection& c) {
  if (c.link->to_client.empty()) return false;
  const std::string message = std::move(c.link->to_client.front());
  c.link->to_client.pop_front();
  if (!c.IsCurrent()) return true;
  trace_->Note("  ", c.client->name(), " gets ", message.size(), " bytes");
  c.client->OnMessage(message);
  return true;
}

bool World::EndWrite(Connection& c) {
  if (c.server == nullptr || !c.server->writing() || !c.link->MayWrite(c.link->to_client)) {
    return false;
  }
  c.server->OnWritten();
  return true;
}

bool World::DetectBreakAtClient(Connection& c) {
  const bool over = c.link->broken || c.link->outcome.has_value();
  if (!c.IsCurrent() || !over || !c.link->to_client.empty()) return false;
  const bool broken = c.link->broken;
  const absl::Status status =
      broken ? absl::UnavailableError("broken") : *std::move(c.link->outcome);
  c.link->Break(&random_);
  trace_->Note("  ", c.client->name(),
               " loses its connection: ", absl::StatusCodeToString(status.code()));
  c.client->OnEnd(status, broken);
  return true;
}

bool World::DetectBreakAtServer(Connection& c) {
  if (c.server == nullptr || c.server->detached()) return false;
  if (!c.server->finished()) {
    if (!c.link->broken || (c.server->reading() && !c.link->to_server.empty())) return false;
    trace_->Note("  the server notices that a connection is gone");
    c.server->OnGone();
    return true;
  }
  if (c.server->applying()) return false;
  c.server->Detach();
  return true;
}

bool World::RandomTransport() {
  const int64_t what = random_.Below(21);
  if (what < 6) {
    ClientEnd* const client = RandomClient();
    if (client == nullptr) return false;
    if (!client->MayConnect()) return client->Send();
    Connect(client);
    return true;
  }
  if (what < 8) return host_.RunSlice(static_cast<int>(random_.Below(Host::kDevices)));
  if (connections_.empty()) return false;
  const size_t index = random_.Below(static_cast<int64_t>(connections_.size()));
  Connection& c = connections_[index];
  if (what < 12) return DeliverToServer(c);
  if (what < 16) return DeliverToClient(c);
  if (what < 18) return EndWrite(c);
  if (what < 19) return DetectBreakAtClient(c);
  if (what < 20) return ContinueMessage(c);
  const bool noticed = DetectBreakAtServer(c);
  if ((c.server == nullptr || c.server->detached()) && !c.IsCurrent()) {
    connections_.erase(connections_.begin() + static_cast<int64_t>(index));
  }
  return noticed;
}

bool World::StepCalls() {
  bool any = StepUploads();
  for (auto& read : reads_) any = read->Step() || any;
  reads_.erase(
      std::remove_if(reads_.begin(), reads_.end(), [](const auto& read) { return read->done(); }),
      reads_.end());
  return any;
}

bool World::StepUploads() {
  bool any = false;
  for (auto& upload : uploads_) {
    const bool was_done = upload->done();
    any = upload->Step() || any;
    if (!was_done && upload->done()) TakeOutcome(*upload);
  }
  // Drops nothing while a script runs: it may be about to use the tensor.
  for (; !acting_ && !failed_uploads_.empty(); failed_uploads_.pop_back()) {
    failed_uploads_.back().first->Drop(failed_uploads_.back().second);
    any = true;
  }
  uploads_.erase(std::remove_if(uploads_.begin(), uploads_.end(),
                                [](const auto& upload) { return upload->settled(); }),
                 uploads_.end());
  return any;
}

World::Actor& World::ActorOf(const UploadCall& upload) {
  return **std::find_if(actors_.begin(), actors_.end(),
                        [&](const auto& a) { return a->client.get() == upload.client(); });
}

void World::TakeOutcome(const UploadCall& upload) {
  const Actor& actor = ActorOf(upload);
  ClientEnd& client = *upload.client();
  if (!actor.script->Holds(upload.value())) {
    // If the client dropped the tensor before the upload began, the upload has created it again.
    client.queue().PushDrop(upload.value()->handle);
    return;
  }
  if (upload.status().ok()) {
    upload.value()->upload = false;
    return;
  }
  const SessionRef session = actor.session.lock();
  const bool gone = session == nullptr || session->closed();
  if (!client.over() && !gone && !absl::IsResourceExhausted(upload.status())) {
    trace_->Fail("an upload ends with ", upload.status().ToString());
  }
  failed_uploads_.push_back({actor.script.get(), upload.value()});
}

bool World::Progress() {
  bool any = false;
  for (const auto& actor : actors_) {
    ClientEnd* const client = actor->client.get();
    if (client->MayConnect()) {
      Connect(client);
      any = true;
    }
    any = client->Send() || any;
  }
  for (size_t i = 0; i < connections_.size(); ++i) {
    any = ContinueMessage(connections_[i]) || any;
    any = DeliverToServer(connections_[i]) || any;
    any = EndWrite(connections_[i]) || any;
    any = DeliverToClient(connections_[i]) || any;
    any = DetectBreakAtClient(connections_[i]) || any;
    any = DetectBreakAtServer(connections_[i]) || any;
  }
  for (int device = 0; device < Host::kDevices; ++device) any = host_.RunSlice(device) || any;
  return StepCalls() || any;
}

void World::RunUntilIdle() {
  for (int i = 0; i < kMaxSettlingSteps && !trace_->failed(); ++i) {
    if (Progress()) continue;
    Clock::Time next = Clock::Time::max();
    for (const auto& actor : actors_) {
      if (actor->client->over() || actor->client->link() != nullptr) continue;
      next = std::min(next, actor->client->retry_at());
    }
    if (next == Clock::Time::max()) return;
    Pass(std::chrono::duration_cast<milliseconds>(next - Clock::Now()) + milliseconds(1));
  }
  trace_->Fail("the world doesn't settle");
}

void World::MakeRoom(ClientEnd* client) {
  trace_->Note("  ", client->name(), " waits for room");
  const auto idle = [client] { return client->queue().pushed() == client->received(); };
  for (int i = 0; i < 300 && !client->over() && !idle() && !trace_->failed(); ++i) {
    RandomTransport();
    StepCalls();
    Pass(milliseconds(random_.Below(10)));
    if (plan_.breaks > 0 && injects_faults_ && random_.OneIn(plan_.breaks)) BreakOne();
  }
  if (client->over() || idle()) return;
  if (!trace_->failed()) RunUntilIdle();
  const auto pending = static_cast<int64_t>(client->queue().pushed() - client->received());
  if (!client->over() && pending >= plan_.max_pending_commands) {
    trace_->Fail(client->name(), "'s queue stays full: ", pending, " commands are pending");
  }
  if (trace_->failed()) client->Close();  // otherwise the queue would wait for room
}

ClientEnd* World::RandomClient() {
  std::vector<ClientEnd*> there;
  for (const auto& actor : actors_) {
    if (!actor->client->over()) there.push_back(actor->client.get());
  }
  return there.empty() ? nullptr : random_.Pick(there);
}

void World::FinishPrograms() {
  trace_->Note("-- no more faults");
  for (int i = 0; i < Host::kDevices; ++i) host_.faults(i).Apply("clear").IgnoreError();
  for (Connection& c : connections_) {
    if (!c.IsCurrent()) c.link->Break(&random_);
  }
  RunUntilIdle();
  CheckEnds();
  for (const auto& actor : actors_) {
    if (actor->client->over()) continue;
    actor->script->ReadAll();
    actor->script->Barrier();
    counts_.reads += static_cast<int64_t>(actor->script->live().size());
  }
  RunUntilIdle();
  CheckEnds();
  CheckLimits();
  for (const auto& actor : actors_) {
    if (!actor->client->over()) CheckHandles(*actor);
  }
  if (!uploads_.empty()) trace_->Fail(uploads_.size(), " uploads don't end");
  if (!reads_.empty()) trace_->Fail(reads_.size(), " reads don't end");
}

void World::EndClients() {
  for (const auto& actor : actors_) EndClient(*actor, random_.OneIn(2));
  RunUntilIdle();
  EndLeases();
  Pass(std::chrono::seconds(plan_.lease_seconds) + milliseconds(1));
  EndLeases();
  RunUntilIdle();  // waiting ops see that their sessions have ended
}

}  // namespace tensord::simulation
