// What a command is given, and what several commands do alike.
#pragma once

#include <iosfwd>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/client/cli/args.h"
#include "tensord/client/cli/terminal.h"
#include "tensord/client/client.h"

namespace tensord::cli {

// Lives as long as the command runs.
struct CommandContext {
  Flags flags;
  std::string server;      // address, as told by --server or the environment
  ConnectOptions connect;  // how to connect there: TLS and who we are
  std::ostream& out;
  std::ostream& err;
  Terminal out_terminal;
  Terminal err_terminal;
};

// Connects to the server and says what to do where that fails.
absl::StatusOr<Client> Connect(const CommandContext& context, absl::string_view client_name);

// The device that --device names; the first GPU, or else cpu:0, where it isn't given.
absl::StatusOr<Device> ChosenDevice(const CommandContext& context, const Client& client);

}  // namespace tensord::cli
