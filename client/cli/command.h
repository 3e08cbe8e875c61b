// The context of a command, and functions that several commands use.
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

// The input and output of a command. It exists while the command runs.
struct CommandContext {
  Flags flags;
  ServerChoice servers;    // from --server, --servers or the environment
  ConnectOptions connect;  // TLS and credentials, from flags
  std::ostream& out;
  std::ostream& err;
  Terminal out_terminal;
  Terminal err_terminal;
};

// Returns the error of a call or of Client::Connect(), with advice for the user in its message.
// Turns INVALID_ARGUMENT into a usage error.
absl::Status WithAdvice(const absl::Status& error);

// Connects to the one server. The error says what the user can do. If several servers are named,
// returns a usage error.
absl::StatusOr<Client> Connect(const CommandContext& context, absl::string_view client_name);

// Connects to context.servers.several. It isn't an error if servers can't be reached: the cluster's
// servers() lists them as lost.
absl::StatusOr<Cluster> ConnectAll(const CommandContext& context, absl::string_view client_name);

// Runs work(0) to work(count - 1), each on a thread of its own, at most `max_threads` at a time.
// Blocks until all have returned.
void ParallelFor(size_t count, size_t max_threads, const std::function<void(size_t index)>& work);

// Runs `query` for each server that isn't lost, in parallel. If it returns an error, sets the
// server's status to that error, and its state to kLost.
void QueryAll(std::vector<ClusterServer>& servers,
              const std::function<absl::Status(size_t index, const ClusterServer&)>& query);

// Returns the information about all servers and their devices. Queries the servers in parallel.
std::vector<ServerListing> ListServers(const Cluster& cluster);
bool AnyLost(absl::Span<const ServerListing> servers);

// Returns the device that --device names. Without the flag, the first GPU, or else cpu:0.
absl::StatusOr<Device> ChosenDevice(const CommandContext& context, const Client& client);

}  // namespace tensord::cli
