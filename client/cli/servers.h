// The servers of a command: one, or a cluster.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/client/cli/args.h"

namespace tensord::cli {

inline constexpr char kDefaultServer[] = "127.0.0.1:50051";

struct ServerChoice {
  std::string one;      // an address; empty if only several are named
  std::string several;  // addresses for Cluster::Connect; empty if only one is named
};

// Chooses the servers by --server or --servers. Without these flags, `several` is `servers_set`
// ($TENSORD_SERVERS) and `one` is `server_set` ($TENSORD_SERVER). If these are empty, too, `one` is
// kDefaultServer. If both flags are given, returns a usage error.
absl::StatusOr<ServerChoice> ChooseServers(const Flags& flags, absl::string_view servers_set,
                                           absl::string_view server_set);

// Returns the address for a command that takes one server. If several are named, returns a usage
// error.
absl::StatusOr<std::string> OneServer(const ServerChoice& choice);

}  // namespace tensord::cli
