// tensorctl sessions: lists the open sessions of a server.
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tensord/client/cli/command.h"
#include "tensord/client/cli/commands/commands.h"
#include "tensord/client/cli/listings.h"
#include "tensord/client/internal/session_admin.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::cli {
namespace {

absl::StatusOr<int> RunSessions(CommandContext& context) {
  TENSORD_ASSIGN_OR_RETURN(const std::string address, OneServer(context.servers));
  TENSORD_ASSIGN_OR_RETURN(const std::unique_ptr<internal::SessionAdmin> admin,
                           internal::SessionAdmin::Connect(address, context.connect));
  const absl::StatusOr<std::vector<internal::SessionInfo>> sessions =
      admin->List(context.flags.Get("principal", ""));
  if (!sessions.ok()) return WithAdvice(sessions.status());
  if (context.flags.Has("json")) {
    context.out << SessionsJson({.address = address}, *sessions);
  } else if (sessions->empty()) {
    context.out << "no sessions\n";
  } else {
    context.out << SessionTable(*sessions, context.out_terminal);
  }
  return 0;
}

}  // namespace

CommandSpec SessionsCommand() {
  return {
      .name = "sessions",
      .summary =
          "the open sessions of this client's identity, or of all callers for an administrator",
      .description =
          "Shows each session with its number, the principal and the program that opened it, its "
          "age, the time since its last use, and its lease. Also shows what it holds: handles, "
          "ops that wait or run, and memory on each device. \"in use\" means that a call or a "
          "stream uses the session. With the token of an administrator (tensorctl "
          "help token), shows the sessions of all principals. On a server without authentication, "
          "all sessions belong to \"(anonymous)\". This command opens no session itself.\n"
          "JSON has the keys \"servers\" and \"sessions\", two lists.",
      .flags = {{"principal", "NAME", "only the sessions of this principal"},
                {"json", "", "print JSON, with sizes in bytes and times in seconds, for programs"}},
      .examples = {{"tensorctl sessions", "Lists the sessions that this client may see."},
                   {"tensorctl sessions --token-file root.token --principal alice",
                    "As an administrator: lists the sessions of alice."}},
      .run = RunSessions,
  };
}

}  // namespace tensord::cli
