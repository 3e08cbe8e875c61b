// tensorctl cluster check: checks whether several servers can work together.
#include <algorithm>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/cli/cluster_check.h"
#include "tensord/client/cli/command.h"
#include "tensord/client/cli/commands/commands.h"
#include "tensord/client/creation.h"
#include "tensord/client/group.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::cli {
namespace {

constexpr char kCheck[] = "check";
// The time limit for a group to be made, and for its barrier.
constexpr absl::Duration kGroupTimeout = absl::Seconds(5);
constexpr size_t kMaxConcurrentGroups = 32;
constexpr int64_t kMaxServers = 1000000;
constexpr int64_t kMaxMeasuredMib = 16384;
constexpr int kMeasurements = 3;

// Copies a number from one server to the other, as a program would. Returns why the servers didn't
// transfer it directly.
absl::Status TryCopy(const Client& from, const Client& to) {
  if (from.devices().empty() || to.devices().empty()) return absl::OkStatus();
  const Tensor copy = FromScalar(from.devices()[0], 1.0f).To(to.devices()[0]);
  TENSORD_ASSIGN_OR_RETURN(const CopyReport report, copy.copy_report());
  if (report.path != CopyPath::kClient) return absl::OkStatus();
  return absl::UnavailableError(report.relay_reason);
}

// Measures one route after another, so that each has the whole network.
void MeasureRoutes(int64_t mib, const std::vector<ClusterServer>& servers, ClusterCheck* check) {
  for (CheckedPair& pair : check->pairs) {
    const Client& from = servers[pair.from].client;
    const Client& to = servers[pair.to].client;
    if (StateOf(*check, pair) != PairState::kOk || from.devices().empty()) continue;
    const Tensor tensor = Ones(from.devices()[0], {mib << 20}, {.dtype = DType::kUInt8});
    pair.copied = tensor.Wait();  // excludes this time from the measurement
    if (!pair.copied.ok()) continue;
    // Measures several times: the first copy makes connections and allocates memory.
    for (int i = 0; i < kMeasurements && pair.copied.ok(); ++i) {
      const absl::StatusOr<CopyReport> report = tensor.To(to.devices()[0]).copy_report();
      pair.copied = report.status();
      const bool better =
          report.ok() && (!pair.measured.has_value() ||
                          report->bytes_per_second() > pair.measured->bytes_per_second());
      if (better) pair.measured = *report;
    }
  }
}

// Makes server `to` check each other server, and tries a copy from each.
std::vector<CheckedPair> CheckPairsTo(const ClusterCheck& check, size_t to,
                                      const std::vector<ClusterServer>& servers) {
  std::vector<CheckedPair> pairs;
  for (size_t from = 0; from < check.servers.size(); ++from) {
    const CheckedServer& other = check.servers[from];
    if (from == to || !other.status.ok()) continue;
    CheckedPair pair = {.from = from, .to = to};
    // A server that is too old has no peer address. Its own CheckPeer call then reports that it is
    // too old.
    const std::string& address =
        other.info.peer_address.empty() ? other.address : other.info.peer_address;
    absl::StatusOr<PeerCheck> answer = servers[to].client.CheckPeer(address);
    pair.request_status = answer.status();
    if (answer.ok()) pair.check = *std::move(answer);
    if (StateOf(check, pair) == PairState::kOk) {
      pair.copied = TryCopy(servers[from].client, servers[to].client);
    }
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

// Returns one device of each member, all of the same kind: CPUs if possible. Returns an empty list
// if they have no common kind.
std::vector<Device> DevicesFor(const std::vector<ClusterServer>& servers,
                               const std::vector<size_t>& members) {
  std::vector<DeviceKind> kinds = {DeviceKind::kCpu};
  for (const Device& device : servers[members[0]].client.devices()) kinds.push_back(device.kind());
  for (const DeviceKind kind : kinds) {
    std::vector<Device> devices;
    for (size_t member : members) {
      const std::vector<Device> all = servers[member].client.devices();
      const auto found = std::find_if(
          all.begin(), all.end(), [kind](const Device& device) { return device.kind() == kind; });
      if (found != all.end()) devices.push_back(*found);
    }
    if (devices.size() == members.size()) return devices;
  }
  return {};
}

absl::Status TryGroup(const std::vector<ClusterServer>& servers,
                      const std::vector<size_t>& members) {
  std::vector<Device> devices = DevicesFor(servers, members);
  if (devices.empty()) {
    return absl::FailedPreconditionError("the servers have no kind of device in common");
  }
  TENSORD_ASSIGN_OR_RETURN(const Group group,
                           Group::Create(std::move(devices), {.timeout = kGroupTimeout}));
  return group.Barrier();
}

// Makes a group of all servers that take part. If that fails, makes groups of two, to find the
// servers that can't reach each other.
CheckedGroup CheckGroups(const std::vector<ClusterServer>& servers) {
  CheckedGroup group;
  group.refusals.resize(servers.size());
  for (size_t i = 0; i < servers.size(); ++i) {
    if (!servers[i].status.ok()) continue;
    if (HasFeature(servers[i].client.info(), "collectives")) {
      group.members.push_back(i);
    } else {
      // Tries it anyway: the error says why the server takes no part.
      group.refusals[i] = TryGroup(servers, {i});
    }
  }
  if (group.members.size() < 2) return group;
  group.together = TryGroup(servers, group.members);
  if (group.together.ok()) return group;
  group.groups_of_two = GroupsOfTwo(group.members);
  ParallelFor(group.groups_of_two.size(), kMaxConcurrentGroups, [&](size_t i) {
    CheckedGroupOfTwo& pair = group.groups_of_two[i];
    pair.status = TryGroup(servers, {pair.one, pair.other});
  });
  return group;
}

ClusterCheck Check(const Cluster& cluster, int64_t measured_mib) {
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
  QueryAll(servers, [&](size_t i, const ClusterServer& /*server*/) {
    pairs[i] = CheckPairsTo(check, i, servers);
    return absl::OkStatus();
  });
  for (size_t i = 0; i < pairs.size(); ++i) {
    for (CheckedPair& pair : pairs[i]) check.pairs.push_back(std::move(pair));
  }
  if (measured_mib > 0) MeasureRoutes(measured_mib, servers, &check);
  check.group = CheckGroups(servers);
  return check;
}

absl::StatusOr<int> RunCluster(CommandContext& context) {
  const std::string what = context.flags.Get(kCheck, "");
  if (what != kCheck) {
    return UsageError(
        absl::StrCat("there is no \"cluster ", what, "\"; there is \"cluster check\""));
  }
  TENSORD_ASSIGN_OR_RETURN(const int64_t expected,
                           context.flags.GetInt("expect", 0, 1, kMaxServers));
  TENSORD_ASSIGN_OR_RETURN(const int64_t measured_mib,
                           context.flags.GetInt("measure", 0, 1, kMaxMeasuredMib));
  if (context.servers.several.empty()) context.servers.several = context.servers.one;
  TENSORD_ASSIGN_OR_RETURN(const Cluster cluster, ConnectAll(context, "cluster check"));
  ClusterCheck check = Check(cluster, measured_mib);
  check.requested_addresses = context.servers.several;
  check.expected = static_cast<size_t>(expected);
  const std::vector<Problem> problems = FindProblems(check);
  context.out << (context.flags.Has("json") ? CheckJson(check, problems)
                                            : CheckText(check, problems, context.out_terminal));
  return CheckExitCode(problems);
}

}  // namespace

CommandSpec ClusterCommand() {
  return {
      .name = "cluster",
      .summary = "\"cluster check\": tests whether several servers run and work together",
      .description =
          "Tests whether every server can fetch tensors from every other server: it must list the "
          "other server (--peers of tensord), reach it (--advertise), be accepted there "
          "(--peer-principals), and know this client by the same name. Then copies a number "
          "between the two servers. Also makes a group of all servers that have --collectives, "
          "with one CPU device each (or one of another common kind), and runs a barrier. If that "
          "fails, it finds the servers that can't reach each other within seconds. For each "
          "problem it prints the server and the flag to change.\n"
          "The second table has a row for each source server and a column for each server that "
          "fetches, with the round-trip time between the two. \"fetches\" and \"collectives\" show "
          "whether a server has --peers and --collectives. It isn't a problem if no server has "
          "--collectives.\n"
          "Exit status: 0 no problem; 1 there are problems, or more servers than expected; 2 a "
          "server is missing, or rejects this client's credentials.",
      .flags = {{"expect", "N", "the expected number of servers; any other number is a problem"},
                {"measure", "MIB",
                 "also copy so many MiB between all pairs of servers, one pair after another, and "
                 "print the best rate of three copies and the path: shared memory (from 4 MiB on) "
                 "or network"},
                {"json", "",
                 "print JSON for programs: \"servers\", \"pairs\" (a route \"from\" a server "
                 "\"to\" another), \"group\", \"problems\""}},
      .operand = kCheck,
      .examples = {{"tensorctl --servers gpu-a:50051,gpu-b:50051 cluster check",
                    "Checks two servers before a job begins."},
                   {"tensorctl --servers gpu-a:50051,gpu-b:50051 cluster check --measure 256",
                    "Also measures how fast tensors are copied."},
                   {"tensorctl --servers tensord.tensord.svc.cluster.local:50051 cluster check "
                    "--expect 4",
                    "Checks all servers behind one name; there should be four."}},
      .run = RunCluster,
  };
}

}  // namespace tensord::cli
