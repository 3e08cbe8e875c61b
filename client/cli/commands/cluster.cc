// tensorctl cluster check: whether several servers can work together.
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/cli/cluster_check.h"
#include "tensord/client/cli/command.h"
#include "tensord/client/cli/commands/commands.h"
#include "tensord/common/status_macros.h"

namespace tensord::cli {
namespace {

constexpr char kCheck[] = "check";

// What `from` says of each other server.
std::vector<CheckedPair> AskAbout(const ClusterCheck& check, size_t from, const Client& client) {
  std::vector<CheckedPair> pairs;
  for (size_t to = 0; to < check.servers.size(); ++to) {
    const CheckedServer& other = check.servers[to];
    if (to == from || !other.status.ok()) continue;
    CheckedPair pair = {.from = from, .to = to};
    // One that is too old to have such an address is found out by what it answers itself.
    const std::string& address =
        other.info.peer_address.empty() ? other.address : other.info.peer_address;
    absl::StatusOr<PeerCheck> answer = client.CheckPeer(address);
    pair.asked = answer.status();
    if (answer.ok()) pair.check = *std::move(answer);
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

ClusterCheck Check(const Cluster& cluster) {
  std::vector<ClusterServer> servers = cluster.servers();
  ClusterCheck check;
  for (const ClusterServer& server : servers) {
    check.servers.push_back({.name = server.name,
                             .address = server.address,
                             .status = server.status,
                             .info = server.client.info(),
                             .devices = server.client.devices().size()});
  }
  std::vector<std::vector<CheckedPair>> pairs(servers.size());
  AskAll(servers, [&](size_t i, const ClusterServer& server) {
    pairs[i] = AskAbout(check, i, server.client);
    return absl::OkStatus();
  });
  for (std::vector<CheckedPair>& of_one : pairs) {
    for (CheckedPair& pair : of_one) check.pairs.push_back(std::move(pair));
  }
  return check;
}

absl::StatusOr<int> Run(CommandContext& context) {
  const std::string what = context.flags.Get(kCheck, "");
  if (what != kCheck) {
    return UsageError(
        absl::StrCat("there is no \"cluster ", what, "\"; there is \"cluster check\""));
  }
  if (context.servers.several.empty()) context.servers.several = context.servers.one;
  TENSORD_ASSIGN_OR_RETURN(const Cluster cluster, ConnectAll(context, "cluster check"));
  const ClusterCheck check = Check(cluster);
  const std::vector<Problem> problems = FindProblems(check);
  context.out << (context.flags.Has("json") ? CheckJson(check, problems)
                                            : CheckText(check, problems, context.out_terminal));
  return CheckExitCode(problems);
}

}  // namespace

CommandSpec ClusterCommand() {
  return {
      .name = "cluster",
      .summary = "\"cluster check\": whether several servers are there and reach each other",
      .description =
          "Asks every server what it is, and whether it can fetch tensors from each of the others: "
          "whether it is allowed to (--peers of tensord), finds it (--advertise), and is let in "
          "(--peer-principals). Shows how long a question between each two takes, and says for "
          "all that is wrong at which server it is mended, and by which flag. \"fetches\" and "
          "\"collectives\" tell whether a server has --peers and --collectives.\n"
          "Exit status: 0 all is well; 1 a server can't reach another, or is too old; 2 a server "
          "is missing, or doesn't let us in.",
      .flags = {{"json", "", "print JSON for programs"}},
      .operand = kCheck,
      .examples = {{"tensorctl --servers gpu-a:50051,gpu-b:50051 cluster check",
                    "Before a job begins."},
                   {"tensorctl --servers tensord.tensord.svc.cluster.local:50051 cluster check",
                    "All servers behind one name."}},
      .run = Run,
  };
}

}  // namespace tensord::cli
