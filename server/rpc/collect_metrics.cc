#include "tensord/server/rpc/collect_metrics.h"

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tensord/server/metrics/families.h"
#include "tensord/server/session/principal_counters.h"

namespace tensord::server {
namespace {

using metrics::Snapshot;

double ToSeconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }
double ToDouble(int64_t bytes) { return static_cast<double>(bytes); }
double Count(int64_t count) { return static_cast<double>(count); }

void AddServer(std::chrono::system_clock::time_point started_at, Snapshot* snapshot) {
  snapshot->Add(metrics::kBuildInfo, {TENSORD_VERSION, grpc::Version()}, 1.0);
  snapshot->Add(metrics::kStartTime, {},
                std::chrono::duration<double>(started_at.time_since_epoch()).count());
}

void AddState(const std::string& device, DeviceState state, Snapshot* snapshot) {
  constexpr std::pair<DeviceState, const char*> kStates[] = {
      {DeviceState::kServing, "serving"},
      {DeviceState::kLost, "lost"},
      {DeviceState::kResetting, "resetting"}};
  for (const auto& [each, name] : kStates) {
    snapshot->Add(metrics::kDeviceState, {device, name}, each == state ? 1.0 : 0.0);
  }
}

void AddDevice(const DeviceSlot& slot, Snapshot* snapshot) {
  const std::string device = slot.device->name().ToString();
  const MemoryStats memory = slot.device->memory();
  snapshot->Add(metrics::kDeviceMemoryUsed, {device}, ToDouble(memory.used_bytes));
  snapshot->Add(metrics::kDeviceMemoryLimit, {device}, ToDouble(memory.limit_bytes));
  snapshot->Add(metrics::kDeviceMemoryPeak, {device}, ToDouble(memory.peak_bytes));
  const Executor::Load load = slot.executor->load();
  snapshot->Add(metrics::kDeviceBusy, {device}, ToSeconds(load.busy_nanoseconds));
  snapshot->Add(metrics::kDeviceQueuedTasks, {device}, Count(load.unfinished_tasks));
  const DeviceHealth health = slot.device->health();
  AddState(device, health.state, snapshot);
  snapshot->Add(metrics::kDeviceFaults, {device}, Count(health.losses));
  snapshot->Add(metrics::kDeviceRestarts, {device}, Count(health.restarts));
}

void AddPrincipal(PrincipalCounters& counters, const std::vector<DeviceSlot*>& slots,
                  Snapshot* snapshot) {
  const std::string& label = counters.label();
  for (const DeviceSlot* slot : slots) {
    const std::string device = slot->device->name().ToString();
    PrincipalCounters::OnDevice& use = counters.on_device(slot->index);
    snapshot->Add(metrics::kPrincipalMemory, {label, device}, ToDouble(use.accounts.used_bytes()));
    snapshot->Add(metrics::kPrincipalDeviceTime, {label, device}, ToSeconds(use.nanoseconds));
  }
  for (const Transfer transfer : {Transfer::kMessage, Transfer::kBulk}) {
    const std::string name(kTransferNames[static_cast<size_t>(transfer)]);
    snapshot->Add(metrics::kPrincipalReceived, {label, name},
                  ToDouble(counters.received_bytes(transfer)));
    snapshot->Add(metrics::kPrincipalSent, {label, name}, ToDouble(counters.sent_bytes(transfer)));
  }
  for (size_t reason = 0; reason < kLimitReasons.size(); ++reason) {
    const int64_t count = counters.refusals(reason);
    if (count == 0) continue;
    snapshot->Add(metrics::kPrincipalRefusals, {label, std::string(kLimitReasons[reason])},
                  Count(count));
  }
}

void AddSessions(const SessionTable& table, Authenticator& authenticator,
                 const std::vector<PrincipalCountersRef>& principals, Snapshot* snapshot) {
  struct Held {
    int64_t sessions = 0;
    int64_t handles = 0;
    int64_t host_bytes = 0;
  };
  std::map<const PrincipalCounters*, Held> held;
  for (const PrincipalCountersRef& counters : principals) held[counters.get()];
  const std::vector<SessionRef> sessions = table.All();
  for (const SessionRef& session : sessions) {
    // A principal that isn't in `principals` yet is in the next snapshot.
    const auto found = held.find(&session->principal()->counters());
    if (found == held.end()) continue;
    ++found->second.sessions;
    found->second.handles += session->num_handles();
  }
  // A principal without sessions may still have tickets and published tensors. Several principals
  // may share counters.
  for (const PrincipalRef& principal : authenticator.principals()) {
    const auto found = held.find(&principal->counters());
    if (found != held.end())
      found->second.host_bytes += principal->budget(PrincipalLimit::kHostBytes).used();
  }
  for (const PrincipalCountersRef& counters : principals) {
    const Held& own = held[counters.get()];
    snapshot->Add(metrics::kPrincipalSessions, {counters->label()}, Count(own.sessions));
    snapshot->Add(metrics::kPrincipalHandles, {counters->label()}, Count(own.handles));
    snapshot->Add(metrics::kPrincipalHostMemory, {counters->label()}, ToDouble(own.host_bytes));
  }
  const Budget& host_bytes = *authenticator.host_budget();
  snapshot->Add(metrics::kHostMemoryUsed, {}, ToDouble(host_bytes.used()));
  snapshot->Add(metrics::kHostMemoryLimit, {},
                ToDouble(host_bytes.limited() ? host_bytes.limit() : 0));
  const SessionTable::Counts counts = table.counts();
  snapshot->Add(metrics::kSessions, {}, Count(static_cast<int64_t>(sessions.size())));
  snapshot->Add(metrics::kSessionsOpened, {}, Count(counts.opened));
  snapshot->Add(metrics::kSessionsEnded, {"closed"}, Count(counts.closed));
  snapshot->Add(metrics::kSessionsEnded, {"expired"}, Count(counts.expired));
}

void AddMethod(const std::string& name, const MethodCounters& counters, Snapshot* snapshot) {
  for (size_t code = 0; code < MethodCounters::kCodes; ++code) {
    const int64_t calls = counters.calls(code);
    if (calls == 0 && code != 0) continue;
    snapshot->Add(metrics::kCalls,
                  {name, absl::StatusCodeToString(static_cast<absl::StatusCode>(code))},
                  Count(calls));
  }
  snapshot->Add(metrics::kCallDuration, {name}, counters.duration());
}

void AddConnections(const Listeners& listeners, const Authenticator& authenticator,
                    Snapshot* snapshot) {
  const Listeners::Counts counts = listeners.counts();
  snapshot->Add(metrics::kConnections, {"unadmitted"}, Count(counts.unadmitted));
  snapshot->Add(metrics::kConnections, {"admitted"}, Count(counts.admitted));
  snapshot->Add(metrics::kConnectionsAccepted, {}, Count(counts.accepted));
  for (size_t i = 0; i < counts.refused.size(); ++i) {
    snapshot->Add(metrics::kConnectionsRefused, {std::string(Listeners::kRefusalReasons[i])},
                  Count(counts.refused[i]));
  }
  for (size_t i = 0; i < counts.closed.size(); ++i) {
    snapshot->Add(metrics::kConnectionsClosed, {std::string(Listeners::kCloseReasons[i])},
                  Count(counts.closed[i]));
  }
  const Authenticator::Failures failures = authenticator.failures();
  snapshot->Add(metrics::kAuthenticationFailures, {"missing"}, Count(failures.missing));
  snapshot->Add(metrics::kAuthenticationFailures, {"invalid"}, Count(failures.invalid));
  snapshot->Add(metrics::kAuthenticationFailures, {"expired"}, Count(failures.expired));
}

}  // namespace

void CollectMetrics(const MetricsSources& sources, Snapshot* snapshot) {
  AddServer(sources.started_at, snapshot);
  const std::vector<DeviceSlot*>& slots = sources.engine->slots();
  for (const DeviceSlot* slot : slots) AddDevice(*slot, snapshot);
  snapshot->Add(metrics::kKernelsToCompile, {}, Count(sources.engine->kernels_to_compile()));
  const std::vector<PrincipalCountersRef> principals = sources.authenticator->principal_counters();
  for (const PrincipalCountersRef& counters : principals) AddPrincipal(*counters, slots, snapshot);
  AddSessions(*sources.sessions, *sources.authenticator, principals, snapshot);
  sources.dispatcher->ForEachMethod(
      [snapshot](const std::string& name, const MethodCounters& counters) {
        AddMethod(name, counters, snapshot);
      });
  AddConnections(*sources.listeners, *sources.authenticator, snapshot);
}

}  // namespace tensord::server
