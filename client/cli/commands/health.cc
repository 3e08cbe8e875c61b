// tensorctl health: probes servers.
#include <algorithm>
#include <ostream>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tensord/client/cli/command.h"
#include "tensord/client/cli/commands/commands.h"
#include "tensord/client/cli/health_probe.h"
#include "tensord/client/cli/text.h"
#include "tensord/common/device_name.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::cli {
namespace {

constexpr double kMaxSeconds = 86400;
constexpr absl::Duration kPause = absl::Milliseconds(100);

// Calls the health service at least once. Repeats the call until the server serves, the server
// refuses the client, or `end` has passed.
HealthAnswer PollUntilServing(const CommandContext& context, const std::string& address,
                              const std::string& service, absl::Duration timeout, absl::Time end) {
  const bool waits = absl::Now() < end;
  while (true) {
    const absl::Duration left = end - absl::Now();
    HealthAnswer answer = CheckHealth(address, context.connect, service,
                                      waits ? std::min(timeout, std::max(left, kPause)) : timeout);
    if (answer.health == Health::kServing || answer.health == Health::kRefused ||
        absl::Now() + kPause >= end)
      return answer;
    absl::SleepFor(kPause);
  }
}

int Report(std::ostream& out, const HealthAnswer& answer, const std::string& service,
           const std::string& server) {
  const std::string subject = absl::StrCat(server, service.empty() ? "" : " ", service, ": ");
  switch (answer.health) {
    case Health::kServing:
      out << subject << "serving\n";
      return 0;
    case Health::kNotServing:
      out << subject << "not serving\n";
      return 1;
    case Health::kUnknownService:
      out << subject << "no such device\n";
      return 1;
    case Health::kRefused:
      out << subject << "refused: " << answer.reason << "\n";
      return 2;
    case Health::kUnreachable:
      break;
  }
  out << subject << "unreachable: " << answer.reason << "\n";
  return 2;
}

absl::StatusOr<int> RunHealth(CommandContext& context) {
  TENSORD_ASSIGN_OR_RETURN(const double timeout,
                           context.flags.GetNumber("timeout", 3, 0.001, kMaxSeconds));
  TENSORD_ASSIGN_OR_RETURN(const double wait, context.flags.GetNumber("wait", 0, 0, kMaxSeconds));
  std::string service;
  if (context.flags.Has("device")) {
    absl::StatusOr<DeviceName> device = ParseDeviceName(context.flags.Get("device", ""));
    if (!device.ok()) return UsageError(absl::StrCat("--device: ", device.status().message()));
    service = device->ToString();
  }
  const ServerChoice& servers = context.servers;
  const absl::Time end = absl::Now() + absl::Seconds(wait);
  int worst = 0;
  for (absl::string_view address :
       absl::StrSplit(servers.several.empty() ? servers.one : servers.several, ',')) {
    const std::string server(absl::StripAsciiWhitespace(address));
    const HealthAnswer answer =
        PollUntilServing(context, server, service, absl::Seconds(timeout), end);
    worst = std::max(worst, Report(context.out, answer, service, server));
  }
  return worst;
}

}  // namespace

CommandSpec HealthCommand() {
  return {
      .name = "health",
      .summary = "tests whether a server, or one of its devices, can be used",
      .description =
          "Calls the standard gRPC health service and prints one line. Exit status: 0 serving; 1 "
          "not serving (the server is draining, or has no such device); 2 unreachable, or the "
          "server refuses to answer. For several servers it prints a line for each, and the exit "
          "status is the highest. The health of the whole server needs no credentials. For a "
          "device, the client must be allowed to use the server.",
      .flags =
          {{"device", "NAME", "ask for this device instead of the whole server"},
           {"timeout", "SECONDS", "the time limit of one call; 3 by default"},
           {"wait", "SECONDS",
            "repeat until the server serves, for at most this time; for scripts that have just "
            "started a server"}},
      .examples = {{"tensorctl health && echo ready", "Tests the server in a script."},
                   {"tensorctl health --wait 30", "Waits for a server that is starting."},
                   {"tensorctl health --device cuda:0 --timeout 1",
                    "Tests one device, with a short time limit."}},
      .run = RunHealth,
  };
}

}  // namespace tensord::cli
