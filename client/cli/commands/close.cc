// tensorctl close: closes sessions of a server.
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/cli/command.h"
#include "tensord/client/cli/commands/commands.h"
#include "tensord/client/cli/text.h"
#include "tensord/client/internal/session_admin.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::cli {
namespace {

// Returns the numbers of the sessions to close.
absl::StatusOr<std::vector<uint64_t>> Numbers(const CommandContext& context,
                                              const internal::SessionAdmin& admin) {
  std::vector<uint64_t> numbers;
  if (context.flags.Has("principal")) {
    const absl::StatusOr<std::vector<internal::SessionInfo>> sessions =
        admin.List(context.flags.Get("principal", ""));
    if (!sessions.ok()) return WithAdvice(sessions.status());
    for (const internal::SessionInfo& session : *sessions) numbers.push_back(session.number);
    return numbers;
  }
  for (const std::string& operand : context.flags.operands()) {
    uint64_t number = 0;
    if (!absl::SimpleAtoi(operand, &number) || number == 0) {
      return UsageError(absl::StrCat(
          "\"", operand, "\" is not a session number; \"tensorctl sessions\" lists them"));
    }
    numbers.push_back(number);
  }
  return numbers;
}

absl::StatusOr<int> RunClose(CommandContext& context) {
  const bool by_principal = context.flags.Has("principal");
  if (by_principal == !context.flags.operands().empty()) {
    return UsageError(
        "give the numbers of sessions, or --principal NAME, but not both; \"tensorctl sessions\" "
        "lists the numbers");
  }
  if (by_principal && context.flags.Get("principal", "").empty()) {
    return UsageError("--principal needs a name");
  }
  TENSORD_ASSIGN_OR_RETURN(const std::string address, OneServer(context.servers));
  TENSORD_ASSIGN_OR_RETURN(const std::unique_ptr<internal::SessionAdmin> admin,
                           internal::SessionAdmin::Connect(address, context.connect));
  TENSORD_ASSIGN_OR_RETURN(const std::vector<uint64_t> numbers, Numbers(context, *admin));
  if (numbers.empty()) {
    context.out << "no sessions of " << context.flags.Get("principal", "")
                << "; \"tensorctl sessions\" lists sessions and their principals\n";
  }
  int code = 0;
  for (const uint64_t number : numbers) {
    const absl::StatusOr<int64_t> freed = admin->Close(number);
    if (freed.ok()) {
      context.out << "closed session " << number << ": " << FormatCount(*freed)
                  << (*freed == 1 ? " tensor" : " tensors") << " freed\n";
    } else if (!absl::IsNotFound(freed.status())) {
      return WithAdvice(freed.status());
    } else if (!by_principal) {  // a listed session may have ended since then: not an error
      context.err << context.err_terminal.Paint(Style::kRed, "tensorctl:") << " "
                  << Printable(freed.status().message()) << "\n";
      code = 1;
    }
  }
  return code;
}

}  // namespace

CommandSpec CloseCommand() {
  return {
      .name = "close",
      .summary = "closes sessions, and frees what they hold",
      .description =
          "Closes the sessions with these numbers (see tensorctl sessions), or all sessions of a "
          "principal. Programs that use a closed session get errors. Without an administrator's "
          "token, the command can close only sessions of this client's identity; for all other "
          "sessions the server returns NOT_FOUND. If a session doesn't exist, the command closes "
          "the others and exits with 1. To stop a caller from opening new sessions, also delete "
          "its line from the server's token file.",
      .flags = {{"principal", "NAME",
                 "close all sessions of this principal, as \"tensorctl sessions\" shows its name"}},
      .operands = "NUMBER…",
      .examples = {{"tensorctl close 12 15", "Closes two sessions."},
                   {"tensorctl close --token-file root.token --principal alice",
                    "As an administrator: closes all sessions of alice."}},
      .run = RunClose,
  };
}

}  // namespace tensord::cli
