#include "tensord/client/cli/servers.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tensord::cli {

absl::StatusOr<ServerChoice> ChooseServers(const Flags& flags, absl::string_view servers_set,
                                           absl::string_view server_set) {
  if (flags.Has("server") && flags.Has("servers")) {
    return UsageError("--server names one server, --servers several: give one of the two");
  }
  if (flags.Has("server")) return ServerChoice{.one = flags.Get("server", "")};
  if (flags.Has("servers")) {
    const std::string several = flags.Get("servers", "");
    if (several.empty()) return UsageError("--servers needs addresses, separated by commas");
    return ServerChoice{.several = several};
  }
  ServerChoice choice = {.one = std::string(server_set), .several = std::string(servers_set)};
  if (choice.one.empty() && choice.several.empty()) choice.one = kDefaultServer;
  return choice;
}

absl::StatusOr<std::string> OneServer(const ServerChoice& choice) {
  if (!choice.one.empty()) return choice.one;
  if (!absl::StrContains(choice.several, ",")) {
    return std::string(absl::StripAsciiWhitespace(choice.several));
  }
  return UsageError(absl::StrCat("this command takes one server, but several are given: ",
                                 choice.several, "; choose one with --server"));
}

}  // namespace tensord::cli
