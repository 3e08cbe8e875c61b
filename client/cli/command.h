// What a command is given, and what several commands do alike.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/client/cli/args.h"
#include "tensord/client/cli/listings.h"
#include "tensord/client/cli/servers.h"
#include "tensord/client/cli/terminal.h"
#include "tensord/client/client.h"
#include "tensord/client/cluster.h"

namespace tensord::cli {

// Lives as long as the command runs.
struct CommandContext {
  Flags flags;
  ServerChoice servers;    // as told by --server, --servers or the environment
  ConnectOptions connect;  // how to connect there: TLS and who we are
  std::ostream& out;
  std::ostream& err;
  Terminal out_terminal;
  Terminal err_terminal;
};

// Connects to the one server and says what to do where that fails. A usage error where several are
// named.
absl::StatusOr<Client> Connect(const CommandContext& context, absl::string_view client_name);

// Connects to several (context.servers.several), with or without those that can't be reached.
absl::StatusOr<Cluster> ConnectAll(const CommandContext& context, absl::string_view client_name);

// Runs work(0) to work(count - 1), `most` at a time, each in a thread of its own.
void AtOnce(size_t count, size_t most, const std::function<void(size_t index)>& work);

// Runs ask(server) for each server of a cluster, at the same time; a server that isn't there, or
// for which it returns an error, has that as its status.
void AskAll(std::vector<ClusterServer>& servers,
            const std::function<absl::Status(size_t index, const ClusterServer&)>& ask);

// What all servers say of themselves and their devices, asked at the same time.
std::vector<ServerListing> ListServers(const Cluster& cluster);
bool AnyLost(absl::Span<const ServerListing> servers);

// The device that --device names; the first GPU, or else cpu:0, where it isn't given.
absl::StatusOr<Device> ChosenDevice(const CommandContext& context, const Client& client);

}  // namespace tensord::cli
