// Which servers a command is about: one, or several seen as one.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/client/cli/args.h"

namespace tensord::cli {

inline constexpr char kDefaultServer[] = "127.0.0.1:50051";

struct ServerChoice {
  std::string one;      // an address; empty where only several are named
  std::string several;  // addresses by commas, as Cluster::Connect takes them; empty where one is
};

// By --server or --servers, or else what $TENSORD_SERVERS and $TENSORD_SERVER hold (`servers_set`,
// `server_set`; empty where they aren't set): `several` by the first, `one` by the second. Where
// nothing is said, `one` is the default. A usage error where both flags are given.
absl::StatusOr<ServerChoice> ChooseServers(const Flags& flags, absl::string_view servers_set,
                                           absl::string_view server_set);

// For a command that takes one server alone: its address. A usage error where several are named.
absl::StatusOr<std::string> OneServer(const ServerChoice& choice);

}  // namespace tensord::cli
