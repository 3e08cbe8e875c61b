#include "tensord/client/cli/command.h"

#include <algorithm>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::cli {
namespace {

constexpr size_t kMaxConcurrentQueries = 64;  // in parallel, each on a thread of its own

}  // namespace

absl::Status WithAdvice(const absl::Status& error) {
  if (absl::IsInvalidArgument(error)) return UsageError(error.message());
  if (absl::IsUnauthenticated(error)) {
    return absl::UnauthenticatedError(
        absl::StrCat(error.message(),
                     "\nGive tensorctl a token with --token-file FILE, or a certificate with "
                     "--tls-cert FILE and --tls-key FILE."));
  }
  if (!absl::IsUnavailable(error)) return error;
  // This message already says what to check.
  if (absl::StrContains(error.message(), "tensorctl --tls")) return error;
  const bool unresolved = absl::StrContains(error.message(), "can't be resolved");
  return absl::UnavailableError(absl::StrCat(
      error.message(), unresolved ? "" : "\nTo start a server on this machine: tensord",
      "\nTo use another server: tensorctl --server HOST:PORT …, or set TENSORD_SERVER."));
}

absl::StatusOr<Client> Connect(const CommandContext& context, absl::string_view client_name) {
  ConnectOptions options = context.connect;
  options.client_name = absl::StrCat("tensorctl ", client_name);
  TENSORD_ASSIGN_OR_RETURN(const std::string address, OneServer(context.servers));
  absl::StatusOr<Client> client = Client::Connect(address, options);
  if (!client.ok()) return WithAdvice(client.status());
  return client;
}

absl::StatusOr<Cluster> ConnectAll(const CommandContext& context, absl::string_view client_name) {
  ClusterOptions options = {.connect = context.connect, .allow_missing = true, .allow_none = true};
  options.connect.client_name = absl::StrCat("tensorctl ", client_name);
  absl::StatusOr<Cluster> cluster = Cluster::Connect(context.servers.several, options);
  if (absl::IsInvalidArgument(cluster.status())) return UsageError(cluster.status().message());
  return cluster;
}

void ParallelFor(size_t count, size_t max_threads, const std::function<void(size_t index)>& work) {
  for (size_t begin = 0; begin < count; begin += max_threads) {
    std::vector<std::thread> threads;
    for (size_t i = begin; i < std::min(count, begin + max_threads); ++i) {
      threads.emplace_back([&work, i] { work(i); });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

void QueryAll(std::vector<ClusterServer>& servers,
              const std::function<absl::Status(size_t index, const ClusterServer&)>& query) {
  ParallelFor(servers.size(), kMaxConcurrentQueries, [&](size_t i) {
    ClusterServer& server = servers[i];
    if (!server.status.ok()) return;
    server.status = query(i, server);
    if (!server.status.ok()) server.state = ServerState::kLost;
  });
}

std::vector<ServerListing> ListServers(const Cluster& cluster) {
  std::vector<ClusterServer> servers = cluster.servers();
  std::vector<ServerListing> listings(servers.size());
  QueryAll(servers, [&](size_t i, const ClusterServer& server) -> absl::Status {
    TENSORD_ASSIGN_OR_RETURN(listings[i].info, server.client.GetServerInfo());
    TENSORD_ASSIGN_OR_RETURN(listings[i].devices, server.client.ListDevices());
    return absl::OkStatus();
  });
  for (size_t i = 0; i < servers.size(); ++i) {
    listings[i].name = servers[i].name;
    listings[i].address = servers[i].address;
    listings[i].status = servers[i].status;
    if (!servers[i].status.ok()) {
      listings[i].info = {};
      listings[i].devices.clear();
    }
  }
  return listings;
}

bool AnyLost(absl::Span<const ServerListing> servers) {
  return std::any_of(servers.begin(), servers.end(),
                     [](const ServerListing& server) { return !server.status.ok(); });
}

absl::StatusOr<Device> ChosenDevice(const CommandContext& context, const Client& client) {
  if (context.flags.Has("device")) {
    const std::string name = context.flags.Get("device", "");
    absl::StatusOr<Device> device = client.device(name);
    if (absl::IsInvalidArgument(device.status())) return UsageError(device.status().message());
    return device;
  }
  Device device = client.TryDevice();
  if (device.valid()) return device;
  return absl::NotFoundError(
      absl::StrCat("the server at ", client.address(), " offers no devices (tensord --devices)"));
}

}  // namespace tensord::cli
