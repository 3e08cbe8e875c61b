#include "tensord/client/cluster.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tensord/client/internal/choose_device.h"
#include "tensord/client/internal/connect_option.h"
#include "tensord/client/internal/connection.h"
#include "tensord/client/internal/fork_guard.h"
#include "tensord/client/internal/interruption.h"
#include "tensord/client/internal/session.h"
#include "tensord/common/gpu_names.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {

struct Cluster::State {
  struct Server {
    std::string name;
    std::string address;
    absl::Status unreached;  // the error of connecting
    Client client;
  };
  std::vector<Server> servers;
};

namespace {

constexpr int kMaxThreads = 64;

absl::Status NoServers() {
  return absl::FailedPreconditionError("the cluster has no servers: use Cluster::Connect");
}

// Returns "gpu-a" for "gpu-a:50051", "[::1]" for "[::1]:50051", and the whole address of a Unix
// socket.
std::string HostOf(absl::string_view address) {
  if (absl::StartsWith(address, "unix:")) return std::string(address);
  return std::string(address.substr(0, address.rfind(':')));
}

std::vector<std::string> NamesOf(const std::vector<std::string>& addresses) {
  absl::flat_hash_map<std::string, int> uses;
  for (const std::string& address : addresses) ++uses[HostOf(address)];
  std::vector<std::string> names;
  for (const std::string& address : addresses) {
    names.push_back(uses[HostOf(address)] > 1 ? address : HostOf(address));
  }
  return names;
}

absl::Status CheckAddresses(const std::vector<std::string>& addresses) {
  if (addresses.empty())
    return absl::InvalidArgumentError("cluster: the list of addresses is empty; give at least one");
  absl::flat_hash_set<std::string> seen;
  for (const std::string& address : addresses) {
    TENSORD_RETURN_IF_ERROR(internal::CheckAddress(address));
    if (!seen.insert(address).second) {
      return absl::InvalidArgumentError(absl::StrCat("cluster: ", address, " is given twice"));
    }
  }
  return absl::OkStatus();
}

// Returns the addresses to which the host of "host:port" resolves, each with the port. If there is
// only one, returns `address` itself.
absl::StatusOr<std::vector<std::string>> Resolve(const std::string& address) {
  TENSORD_RETURN_IF_ERROR(internal::CheckAddress(address));
  if (absl::StartsWith(address, "unix:")) return std::vector<std::string>{address};
  absl::string_view host = absl::string_view(address).substr(0, address.rfind(':'));
  const std::string port = address.substr(address.rfind(':') + 1);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(std::string(host).c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cluster: can't resolve ", std::string(host), ": ", gai_strerror(error)));
  }
  std::vector<std::string> addresses;
  bool has_ipv4 = false;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    char name[NI_MAXHOST];
    if (getnameinfo(info->ai_addr, info->ai_addrlen, name, sizeof(name), nullptr, 0,
                    NI_NUMERICHOST) != 0) {
      continue;
    }
    // A server with addresses of both families counts once: uses only IPv4 if there is any.
    if (info->ai_family == AF_INET && !std::exchange(has_ipv4, true)) addresses.clear();
    if (info->ai_family != AF_INET && has_ipv4) continue;
    addresses.push_back(info->ai_family == AF_INET6 ? absl::StrCat("[", name, "]:", port)
                                                    : absl::StrCat(name, ":", port));
  }
  freeaddrinfo(found);
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  if (addresses.size() < 2) return std::vector<std::string>{address};
  return addresses;
}

// The threads have the calling thread's interruption, whose `check` must be null.
template <typename Do>
void ForEachInParallel(size_t count, Do work) {
  internal::Interruption* const interruption = internal::Interruption::OfThisThread();
  for (size_t begin = 0; begin < count; begin += kMaxThreads) {
    std::vector<std::thread> threads;
    for (size_t i = begin; i < std::min(count, begin + kMaxThreads); ++i) {
      threads.emplace_back([&work, i, interruption] {
        const internal::Interruption::Scope scope(interruption);
        work(i);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace

std::string ServerStateName(ServerState state) {
  switch (state) {
    case ServerState::kConnected:
      return "connected";
    case ServerState::kReconnecting:
      return "reconnecting";
    case ServerState::kLost:
      break;
  }
  return "lost";
}

absl::StatusOr<Cluster> Cluster::Connect(const std::vector<std::string>& addresses,
                                         const ClusterOptions& options) {
  if (internal::InForkedChild()) return internal::ForkedError();
  TENSORD_RETURN_IF_ERROR(CheckAddresses(addresses));
  const std::vector<std::string> names = NamesOf(addresses);
  auto state = std::make_shared<State>();
  state->servers.resize(addresses.size());
  ForEachInParallel(addresses.size(), [&](size_t i) {
    State::Server& server = state->servers[i];
    server.name = names[i];
    server.address = addresses[i];
    auto session = internal::Session::Open(addresses[i], options.connect, names[i]);
    server.unreached = session.status();
    if (session.ok()) server.client = Client(*std::move(session));
  });

  std::vector<std::string> problems;
  absl::Status first;
  for (const State::Server& server : state->servers) {
    if (server.unreached.ok()) continue;
    problems.push_back(absl::StrCat(server.address, ": ", server.unreached.message()));
    if (first.ok()) first = server.unreached;
  }
  const bool enough =
      options.allow_none || (options.allow_missing && problems.size() < addresses.size());
  if (problems.empty() || enough) return Cluster(std::move(state));
  absl::Status status(first.code(),
                      absl::StrCat("cluster: ", problems.size(), " of ", addresses.size(),
                                   " servers can't be used: ", absl::StrJoin(problems, "; ")));
  first.ForEachPayload(
      [&](absl::string_view type, const absl::Cord& payload) { status.SetPayload(type, payload); });
  return status;
}

absl::StatusOr<Cluster> Cluster::Connect(absl::string_view addresses,
                                         const ClusterOptions& options) {
  if (internal::InForkedChild()) return internal::ForkedError();
  if (addresses.empty()) {
    const std::string named = internal::AddressesFromEnvironment();
    if (!named.empty()) return Connect(named, options);
    return absl::InvalidArgumentError(
        "cluster: no addresses, and neither TENSORD_SERVERS nor TENSORD_SERVER is set");
  }
  std::vector<std::string> list;
  for (absl::string_view address : absl::StrSplit(addresses, ',', absl::SkipWhitespace())) {
    list.emplace_back(absl::StripAsciiWhitespace(address));
  }
  if (list.size() != 1) return Connect(list, options);
  TENSORD_ASSIGN_OR_RETURN(const std::vector<std::string> resolved, Resolve(list[0]));
  ClusterOptions server_options = options;
  if (resolved[0] != list[0] && options.connect.tls.server_name.empty()) {
    server_options.connect.tls.server_name = HostOf(list[0]);
  }
  return Connect(resolved, server_options);
}

std::vector<ClusterServer> Cluster::servers() const {
  std::vector<ClusterServer> servers;
  if (state_ == nullptr) return servers;
  for (const State::Server& server : state_->servers) {
    ClusterServer now;
    now.name = server.name;
    now.address = server.address;
    now.client = server.client;
    now.status = server.unreached.ok() ? server.client.status() : server.unreached;
    if (now.status.ok()) {
      now.state = server.client.connected() ? ServerState::kConnected : ServerState::kReconnecting;
    }
    servers.push_back(std::move(now));
  }
  return servers;
}

absl::StatusOr<Client> Cluster::server(absl::string_view name) const {
  if (state_ == nullptr) return NoServers();
  std::vector<std::string> names;
  for (const State::Server& server : state_->servers) {
    if (server.name == name || server.address == name) {
      if (!server.unreached.ok()) return server.unreached;
      return server.client;
    }
    names.push_back(server.name);
  }
  return absl::NotFoundError(
      absl::StrCat("no server ", name, " in the cluster; it has ", absl::StrJoin(names, ", ")));
}

std::vector<Device> Cluster::devices() const {
  std::vector<Device> devices;
  if (state_ == nullptr) return devices;
  for (const State::Server& server : state_->servers) {
    for (Device& device : server.client.devices()) devices.push_back(std::move(device));
  }
  return devices;
}

absl::StatusOr<Device> Cluster::device(absl::string_view name) const {
  if (state_ == nullptr) return NoServers();
  // A server's name may contain slashes. A device's name never does.
  const size_t slash = name.rfind('/');
  if (slash != absl::string_view::npos) {
    TENSORD_ASSIGN_OR_RETURN(const Client client, server(name.substr(0, slash)));
    return client.device(name.substr(slash + 1));
  }
  TENSORD_ASSIGN_OR_RETURN(const DeviceName id, ParseDeviceName(name));
  std::vector<std::string> names;
  for (const Device& device : devices()) {
    if (device.id() == id) return device;
    names.push_back(device.name());
  }
  std::string message = absl::StrCat("no device ", id.ToString(), " in the cluster; it has ",
                                     absl::StrJoin(names, ", "));
  for (const State::Server& server : state_->servers) {
    const auto& reasons = server.client.info().unavailable_devices;
    const auto reason = reasons.find(std::string(id.kind.name()));
    if (reason == reasons.end()) continue;
    absl::StrAppend(&message, "; ", server.name, " has no ", id.kind.name(),
                    " device: ", reason->second);
  }
  absl::StrAppend(&message, GpuNameHint(id.kind));
  return absl::NotFoundError(message);
}

absl::StatusOr<Device> Cluster::device(int index) const {
  if (state_ == nullptr) return NoServers();
  const std::vector<Device> all = devices();
  if (index >= 0 && index < static_cast<int>(all.size())) return all[index];
  return absl::OutOfRangeError(
      absl::StrCat("no device with index ", index, " in the cluster; it has ", all.size(),
                   all.size() == 1 ? " device" : " devices", ", numbered from 0"));
}

int Cluster::DeviceCount(DeviceKind kind) const { return internal::CountDevices(devices(), kind); }

Device Cluster::TryDevice(int i) const { return internal::ChooseDevice(devices(), i); }

std::vector<Device> Cluster::TryAllDevices() const { return internal::ChooseDevices(devices()); }

absl::Status Cluster::Synchronize() const {
  if (state_ == nullptr) return NoServers();
  absl::Status first;
  for (const State::Server& server : state_->servers) {
    if (!server.unreached.ok()) continue;
    const absl::Status status = server.client.Synchronize();
    if (!status.ok() && first.ok()) {
      first = WithPrefix(status, absl::StrCat(server.name, ": "));
    }
  }
  return first;
}

void Cluster::Close() {
  if (state_ == nullptr || internal::InForkedChild()) return;
  ForEachInParallel(state_->servers.size(), [this](size_t i) {
    Client client = state_->servers[i].client;
    client.Close();
  });
}

}  // namespace tensord
