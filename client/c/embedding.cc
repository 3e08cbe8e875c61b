#include "tensord/client/c/embedding.h"

#include <atomic>
#include <cstdlib>
#include <deque>

#include "absl/strings/match.h"
#include "tensord/client/client.h"
#include "tensord/client/cluster.h"
#include "tensord/client/internal/connect_option.h"
#include "tensord/client/internal/enqueue.h"
#include "tensord/client/internal/wait_hooks.h"
#include "tensord/common/util/mutex.h"

namespace tensord::c {
namespace {

// The connection of the process. Never destroyed: late destructors may use it.
struct Process {
  Mutex mu;  // held while the process connects
  std::vector<Device> devices ABSL_GUARDED_BY(mu);
};
Process& TheProcess() {
  static auto* const process = new Process;
  return *process;
}

absl::Status WaitPlainly(absl::FunctionRef<absl::Status()> wait, WaitKind) { return wait(); }

// Without addresses, uses those of the environment, or else a server of this machine.
absl::StatusOr<std::vector<Device>> ConnectTo(std::string addresses,
                                              const ConnectOptions& options) {
  for (const char* name : {"TENSORD_SERVERS", "TENSORD_SERVER"}) {
    const char* const value = std::getenv(name);
    if (addresses.empty() && value != nullptr) addresses = value;
  }
  if (addresses.empty()) addresses = "127.0.0.1:50051";
  if (!absl::StrContains(addresses, ',')) {
    const absl::StatusOr<Client> client = Client::Connect(addresses, options);
    if (!client.ok()) return client.status();
    return client->devices();
  }
  const absl::StatusOr<Cluster> cluster = Cluster::Connect(addresses, {.connect = options});
  if (!cluster.ok()) return cluster.status();
  return cluster->devices();
}

absl::Status ConnectPlainly(const std::string& addresses,
                            const std::vector<std::pair<std::string, std::string>>& given) {
  ConnectOptions options;
  for (const auto& [name, value] : given) {
    if (const absl::Status set = internal::SetConnectOption(name, value, &options); !set.ok())
      return set;
  }
  absl::StatusOr<std::vector<Device>> devices = ConnectTo(addresses, options);
  if (!devices.ok()) return devices.status();
  Process& process = TheProcess();
  MutexLock lock(&process.mu);
  process.devices = *std::move(devices);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Device>> PlainDevices() {
  Process& process = TheProcess();
  MutexLock lock(&process.mu);
  if (process.devices.empty()) {
    absl::StatusOr<std::vector<Device>> devices = ConnectTo("", {});
    if (!devices.ok()) return devices.status();
    process.devices = *std::move(devices);
  }
  return process.devices;
}

std::string PlainMessage(const absl::Status& error) { return std::string(error.message()); }

// With the word "sync" in TENSORD_DEBUG, each op waits, so that its own call has its error.
absl::Status WaitInDebugMode(const Tensor& made) {
  static const bool sync = [] {
    const char* const modes = std::getenv("TENSORD_DEBUG");
    return modes != nullptr && absl::StrContains(modes, "sync");
  }();
  return !sync || internal::IsRecorded(made) ? absl::OkStatus() : made.Wait();
}

void SetPlainWaitHooks(void* (*before)(), void (*after)(void* state)) {
  // A wait that has begun calls the `after` that belongs to its `before`. So the old pair stays.
  static auto* const pairs = new std::deque<internal::WaitHooks>;
  static Mutex mu;
  MutexLock lock(&mu);
  internal::wait_hooks.store(before == nullptr ? nullptr : &pairs->emplace_back(before, after));
}

std::atomic<const Embedding*> current{&kPlainEmbedding};

}  // namespace

const Embedding kPlainEmbedding = {
    .wait = WaitPlainly,
    .connect = ConnectPlainly,
    .devices = PlainDevices,
    .message = PlainMessage,
    .observe = WaitInDebugMode,
    .set_wait_hooks = SetPlainWaitHooks,
    .raised = [] { return false; },
    .to_object = nullptr,
    .from_object = nullptr,
};

void SetEmbedding(const Embedding& embedding) { current = &embedding; }
const Embedding& TheEmbedding() { return *current.load(std::memory_order_acquire); }

}  // namespace tensord::c
