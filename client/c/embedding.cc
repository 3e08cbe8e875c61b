#include "tensord/client/c/embedding.h"

#include <atomic>
#include <cstdlib>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tensord/client/client.h"
#include "tensord/client/cluster.h"
#include "tensord/client/internal/connect_option.h"
#include "tensord/client/internal/enqueue.h"
#include "tensord/client/internal/fork_guard.h"
#include "tensord/client/internal/session.h"
#include "tensord/client/internal/wait_hooks.h"
#include "tensord/common/util/mutex.h"

namespace tensord::c {
namespace {

// The connection of the process. Never destroyed: late destructors may use it.
struct Process {
  Mutex mu;  // held while a first use of the devices connects
  bool connected ABSL_GUARDED_BY(mu) = false;
  std::vector<Device> devices ABSL_GUARDED_BY(mu);
  std::vector<std::weak_ptr<internal::Session>> sessions ABSL_GUARDED_BY(mu);  // to close at exit
};
Process& TheProcess() {
  static auto* const process = new Process;
  return *process;
}

// Closes the connections of this process, so that the servers free its tensors at once. In a forked
// child it has no effect.
void CloseAll() {
  if (internal::InForkedChild()) return;
  std::vector<std::weak_ptr<internal::Session>> sessions;
  {
    Process& process = TheProcess();
    if (!process.mu.TryLock()) return;  // a thread is connecting
    sessions = process.sessions;
    process.mu.Unlock();
  }
  for (const auto& each : sessions) {
    if (const std::shared_ptr<internal::Session> session = each.lock()) session->Close();
  }
}

// Makes these devices the current ones, and returns the former ones, whose destructors may block.
std::vector<Device> SetDevices(Process& process, std::vector<Device> devices)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(process.mu) {
  static const int registered = std::atexit(CloseAll);
  (void)registered;
  process.connected = true;
  std::erase_if(process.sessions, [](const auto& session) { return session.expired(); });
  for (const Device& device : devices) process.sessions.push_back(device.session());
  std::swap(process.devices, devices);
  return devices;
}

absl::Status WaitPlainly(absl::FunctionRef<absl::Status()> wait, WaitKind) { return wait(); }

// Without addresses, uses those of the environment, or else a server of this machine.
absl::StatusOr<std::vector<Device>> ConnectTo(std::string addresses,
                                              const ConnectOptions& options) {
  if (addresses.empty()) addresses = internal::AddressesFromEnvironment();
  const bool is_default = addresses.empty();
  if (is_default) addresses = "127.0.0.1:50051";
  if (!absl::StrContains(addresses, ',')) {
    const absl::StatusOr<Client> client =
        Client::Connect(absl::StripAsciiWhitespace(addresses), options);
    if (client.ok()) return client->devices();
    if (!is_default) return client.status();
    absl::Status status(client.status().code(),
                        absl::StrCat(client.status().message(), "; this is the default address: ",
                                     "neither connect nor TENSORD_SERVERS has named a server"));
    client.status().ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
      status.SetPayload(type, payload);
    });
    return status;
  }
  const absl::StatusOr<Cluster> cluster = Cluster::Connect(addresses, {.connect = options});
  if (!cluster.ok()) return cluster.status();
  return cluster->devices();
}

absl::Status ConnectPlainly(const std::string& addresses,
                            const std::vector<std::pair<std::string, std::string>>& given) {
  if (internal::InForkedChild()) return internal::ForkedError();
  ConnectOptions options;
  for (const auto& [name, value] : given) {
    if (const absl::Status set = internal::SetConnectOption(name, value, &options); !set.ok())
      return set;
  }
  absl::StatusOr<std::vector<Device>> devices = ConnectTo(addresses, options);
  if (!devices.ok()) return devices.status();
  std::vector<Device> former;
  Process& process = TheProcess();
  MutexLock lock(&process.mu);
  former = SetDevices(process, *std::move(devices));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Device>> PlainDevices() {
  if (internal::InForkedChild()) return internal::ForkedError();
  Process& process = TheProcess();
  MutexLock lock(&process.mu);
  if (!process.connected) {
    absl::StatusOr<std::vector<Device>> devices = ConnectTo("", {});
    if (!devices.ok()) return devices.status();
    SetDevices(process, *std::move(devices));
  }
  return process.devices;
}

// With the names of the C interface in place of those of C++.
std::string PlainMessage(const absl::Status& error) {
  return absl::StrReplaceAll(error.message(),
                             {{"make a new Client with Client::Connect", "connect again"},
                              {"connect again (Client::Connect)", "connect again"},
                              {"Client::Close has closed", "close has closed"},
                              {"Client::Connect", "connect"},
                              {"Cluster::Connect", "connect"},
                              {"ConnectOptions::reconnect_timeout", "reconnect_timeout"},
                              {"Tensor::To", "copy"}});
}

// With the word "sync" in TENSORD_DEBUG, each op waits, so that its own call has its error.
absl::Status WaitInDebugMode(const Tensor& made) {
  static const bool sync = [] {
    const char* const modes = std::getenv("TENSORD_DEBUG");
    return modes != nullptr && absl::StrContains(modes, "sync");
  }();
  return !sync || internal::IsRecorded(made) ? absl::OkStatus() : made.Wait();
}

void SetPlainWaitHooks(void* (*before)(), void (*after)(void* state)) {
  internal::wait_hooks.store(internal::KeepWaitHooks(before, after));
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
