// tensorctl: inspects and tests tensord servers.
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tensord/client/cli/args.h"
#include "tensord/client/cli/command.h"
#include "tensord/client/cli/commands/commands.h"
#include "tensord/client/cli/help.h"
#include "tensord/client/cli/servers.h"
#include "tensord/client/cli/terminal.h"
#include "tensord/client/cli/text.h"
#include "tensord/client/tour/commands.h"

namespace tensord::cli {
namespace {

std::vector<CommandSpec> AllCommands() {
  return {DevicesCommand(),    TensorsCommand(), SessionsCommand(), CloseCommand(),
          InfoCommand(),       HealthCommand(),  ClusterCommand(),  tour::RunModelCommand(),
          tour::TourCommand(), TokenCommand()};
}

std::vector<FlagSpec> GeneralFlags() {
  return {
      {"server", "ADDRESS",
       absl::StrCat("host:port or unix:/path; $TENSORD_SERVER by default, or else ", kDefaultServer,
                    "; this flag takes precedence over $TENSORD_SERVERS")},
      {"servers", "ADDRESSES",
       "several addresses, separated by commas, or one HOST:PORT that resolves to several; "
       "$TENSORD_SERVERS by default. Only for devices, tensors, info, health and cluster check: "
       "for them $TENSORD_SERVERS takes precedence over $TENSORD_SERVER. Other commands use "
       "$TENSORD_SERVER"},
      {"token-file", "FILE",
       "file with the token that identifies this client; $TENSORD_TOKEN_FILE by default"},
      {"tls", "", "encrypt, and trust the system's authorities; or TENSORD_TLS=1"},
      {"tls-ca", "FILE", "encrypt, and trust these authorities; $TENSORD_TLS_CA by default"},
      {"tls-cert", "FILE",
       "file with the certificate that identifies this client; $TENSORD_TLS_CERT by default"},
      {"tls-key", "FILE", "the certificate's key; $TENSORD_TLS_KEY by default"},
      {"tls-server-name", "NAME",
       "the name in the server's certificate, if it differs from the address; "
       "$TENSORD_TLS_SERVER_NAME by default"},
      {"help", "", "print this text; after a command, the command's help"},
      {"version", "", "print the version of this program"}};
}

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

ConnectOptions ConnectOptionsFromFlags(const Flags& flags) {
  ConnectOptions options;
  options.token_file = flags.Get("token-file", "");
  options.tls = {.use = flags.Has("tls"),
                 .ca_file = flags.Get("tls-ca", ""),
                 .cert_file = flags.Get("tls-cert", ""),
                 .key_file = flags.Get("tls-key", ""),
                 .server_name = flags.Get("tls-server-name", "")};
  return options;
}

int PrintError(const absl::Status& status, const Terminal& terminal) {
  std::cout.flush();
  std::cerr << terminal.Paint(Style::kRed, "tensorctl:") << " ";
  // Parts of the message may come from a server or a file.
  for (absl::string_view line : absl::StrSplit(status.message(), '\n')) {
    std::cerr << Printable(line) << "\n";
  }
  if (!IsUsageError(status)) return 1;
  std::cerr << "See \"tensorctl help\" and \"tensorctl help COMMAND\".\n";
  return 2;
}

int RunCommand(const CommandSpec& command, Flags flags, const Terminal& out_terminal,
               const Terminal& err_terminal) {
  const absl::StatusOr<ServerChoice> servers =
      ChooseServers(flags, FromEnvironment("TENSORD_SERVERS"), FromEnvironment("TENSORD_SERVER"));
  if (!servers.ok()) return PrintError(servers.status(), err_terminal);
  const ConnectOptions connect = ConnectOptionsFromFlags(flags);
  CommandContext context = {.flags = std::move(flags),
                            .servers = *servers,
                            .connect = connect,
                            .out = std::cout,
                            .err = std::cerr,
                            .out_terminal = out_terminal,
                            .err_terminal = err_terminal};
  const absl::StatusOr<int> code = command.run(context);
  if (!code.ok()) return PrintError(code.status(), err_terminal);
  if (!std::cout.flush()) {
    return PrintError(absl::DataLossError("can't write to standard output"), err_terminal);
  }
  return *code;
}

int Main(const std::vector<std::string>& args) {
  const Terminal out_terminal = DetectTerminal(STDOUT_FILENO);
  const Terminal err_terminal = DetectTerminal(STDERR_FILENO);
  const std::vector<CommandSpec> commands = AllCommands();
  const std::vector<FlagSpec> general_flags = GeneralFlags();
  absl::StatusOr<Invocation> invocation = ParseCommandLine(args, commands, general_flags);
  if (!invocation.ok()) return PrintError(invocation.status(), err_terminal);
  switch (invocation->action) {
    case Invocation::Action::kVersion:
      std::cout << "tensorctl " TENSORD_VERSION "\n";
      return 0;
    case Invocation::Action::kOverview:
      std::cout << OverviewHelp(commands, general_flags, out_terminal);
      return 0;
    case Invocation::Action::kCommandHelp:
      std::cout << CommandHelp(*invocation->command, general_flags, out_terminal);
      return 0;
    case Invocation::Action::kRun:
      break;
  }
  return RunCommand(*invocation->command, std::move(invocation->flags), out_terminal, err_terminal);
}

}  // namespace
}  // namespace tensord::cli

int main(int argc, char** argv) {
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);  // errors come as statuses
  return tensord::cli::Main(std::vector<std::string>(argv + 1, argv + argc));
}
