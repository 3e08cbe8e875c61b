#include "tensord/client/cli/cluster_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tensord/client/cli/text.h"

namespace tensord::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Returns a check of the servers "gpu-a", "gpu-b", … that found no problem.
ClusterCheck Good(size_t servers) {
  ClusterCheck check;
  for (size_t i = 0; i < servers; ++i) {
    const std::string name = absl::StrCat("gpu-", std::string(1, static_cast<char>('a' + i)));
    CheckedServer server = {.name = name, .address = name + ":50051", .devices = 2};
    server.info.version = "0.1.0";
    server.info.features = {"session-stream", "peer-copy", "collectives"};
    server.info.epoch = absl::StrCat("epoch of ", name);
    server.info.peer_address = name + ".cluster:50051";
    check.servers.push_back(server);
    check.group.members.push_back(i);
    check.group.refusals.push_back(absl::OkStatus());
  }
  for (size_t from = 0; from < servers; ++from) {
    for (size_t to = 0; to < servers; ++to) {
      if (from == to) continue;
      CheckedPair pair = {.from = from, .to = to};
      pair.check.server = check.servers[from].info;
      pair.check.round_trip = absl::Microseconds(150);
      check.pairs.push_back(pair);
    }
  }
  return check;
}

// Returns the pair in which server `to` fetches from server `from`.
CheckedPair& Fetching(ClusterCheck& check, size_t to, size_t from) {
  for (CheckedPair& pair : check.pairs) {
    if (pair.from == from && pair.to == to) return pair;
  }
  ADD_FAILURE() << "no such pair";
  return check.pairs[0];
}

// Sets the answer of a server that hasn't reached the other server.
void Fail(CheckedPair& pair, const absl::Status& status) { pair.check = {.status = status}; }

void Remove(ClusterCheck& check, size_t server, const absl::Status& why) {
  check.servers[server].status = why;
  check.servers[server].info = {};
  std::erase_if(check.pairs,
                [&](const CheckedPair& pair) { return pair.from == server || pair.to == server; });
  std::erase(check.group.members, server);
}

Problem OnlyProblem(const ClusterCheck& check) {
  const std::vector<Problem> problems = FindProblems(check);
  EXPECT_EQ(problems.size(), 1u) << CheckText(check, problems, {});
  return problems.empty() ? Problem() : problems[0];
}

TEST(ClusterCheck, ReportsNoProblem) {
  const ClusterCheck check = Good(3);
  const std::vector<Problem> problems = FindProblems(check);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(CheckExitCode(problems), 0);
  EXPECT_EQ(CheckText(check, problems, {}),
            "server  version  devices  peer address         fetches  collectives\n"
            "gpu-a   0.1.0          2  gpu-a.cluster:50051  yes      yes\n"
            "gpu-b   0.1.0          2  gpu-b.cluster:50051  yes      yes\n"
            "gpu-c   0.1.0          2  gpu-c.cluster:50051  yes      yes\n"
            "\n"
            "from \\ to   gpu-a   gpu-b   gpu-c\n"
            "gpu-a           ·  150 µs  150 µs\n"
            "gpu-b      150 µs       ·  150 µs\n"
            "gpu-c      150 µs  150 µs       ·\n"
            "\n"
            "3 of 3 servers can be used; 6 of 6 routes between them work.\n"
            "A group of 3 devices, one on each server, was created and passed a barrier.\n");
}

TEST(ClusterCheck, OneServerAloneNeedsNoPeers) {
  ClusterCheck check = Good(1);
  check.servers[0].info.features.clear();
  check.servers[0].info.peer_address.clear();
  check.group.members.clear();
  EXPECT_TRUE(FindProblems(check).empty());
}

TEST(ClusterCheck, ReportsAMissingServer) {
  ClusterCheck check = Good(3);
  Remove(check, 1,
         absl::UnavailableError("failed to connect to all addresses; last error: UNKNOWN: "
                                "ipv4:10.0.0.2:50051: Failed to connect to remote host: "
                                "Connection refused"));
  const Problem problem = OnlyProblem(check);
  EXPECT_EQ(problem.server, "gpu-b");
  EXPECT_THAT(problem.sentence, AllOf(HasSubstr("gpu-b can't be reached (Connection refused)"),
                                      HasSubstr("--listen")));
  EXPECT_EQ(CheckExitCode({&problem, 1}), 2);
  EXPECT_THAT(
      CheckText(check, {&problem, 1}, {}),
      AllOf(HasSubstr("gpu-b   missing"), HasSubstr("2 of 3 servers"), HasSubstr("2 of 6 routes")));
}

TEST(ClusterCheck, AllowsClustersWithoutCollectives) {
  ClusterCheck check = Good(3);
  check.group.members.clear();
  for (absl::Status& refusal : check.group.refusals) {
    refusal = absl::FailedPreconditionError("no --collectives");
  }
  const std::vector<Problem> problems = FindProblems(check);
  EXPECT_EQ(CheckExitCode(problems), 0);
  EXPECT_THAT(CheckText(check, problems, {.width = 200}),
              HasSubstr("No server takes part in groups"));
}

TEST(ClusterCheck, ReportsAServerWithoutCollectives) {
  ClusterCheck check = Good(3);
  check.group.members = {0, 2};
  check.group.refusals[1] = absl::FailedPreconditionError("start it so");
  const Problem problem = OnlyProblem(check);
  EXPECT_EQ(problem.server, "gpu-b");
  EXPECT_EQ(problem.flag, "--collectives");
  EXPECT_THAT(problem.sentence, HasSubstr("gpu-b takes no part in groups (all_reduce and the "
                                          "like), as gpu-a, gpu-c do (start it so)"));
  EXPECT_EQ(CheckExitCode({&problem, 1}), 1);
}

TEST(ClusterCheck, ReportsAnUnreachableCollectiveAddress) {
  ClusterCheck check = Good(4);
  check.group.together = absl::DeadlineExceededError("rank 0 waited");
  check.group.groups_of_two = GroupsOfTwo(check.group.members);
  ASSERT_EQ(check.group.groups_of_two.size(), 6u);
  for (CheckedGroupOfTwo& group : check.group.groups_of_two) {
    if (group.one == 2 || group.other == 2) {
      group.status = absl::AbortedError("Connection refused.");
    }
  }
  const Problem problem = OnlyProblem(check);
  EXPECT_EQ(problem.server, "gpu-c");
  EXPECT_EQ(problem.flag, "--collectives");
  EXPECT_THAT(problem.sentence,
              HasSubstr("gpu-c can't make a group with gpu-a, gpu-b, gpu-d (Connection refused)"));
  const auto json = nlohmann::json::parse(CheckJson(check, {&problem, 1}));
  EXPECT_EQ(json["group"]["state"], "failed");
  EXPECT_EQ(json["group"]["members"].size(), 4u);
}

TEST(ClusterCheck, ReportsAGroupThatOnlyFailsAsAWhole) {
  ClusterCheck check = Good(3);
  check.group.together = absl::ResourceExhaustedError("no descriptors");
  check.group.groups_of_two = GroupsOfTwo(check.group.members);
  EXPECT_THAT(OnlyProblem(check).sentence,
              HasSubstr("No group can be made of gpu-a, gpu-b, gpu-c: no descriptors."));
}

TEST(ClusterCheck, LimitsThePairsOfManyServers) {
  std::vector<size_t> members(1000);
  std::iota(members.begin(), members.end(), 0);
  EXPECT_EQ(GroupsOfTwo(members).size(), 999u);
  members.resize(50);
  EXPECT_LE(GroupsOfTwo(members).size(), 256u);
  EXPECT_EQ(GroupsOfTwo({}).size(), 0u);
}

TEST(ClusterCheck, ReportsACallerWithTwoNames) {
  ClusterCheck check = Good(2);
  check.servers[0].info.caller = "alice";
  check.servers[1].info.caller = "bob";
  for (CheckedPair& pair : check.pairs) pair.copied = absl::UnavailableError("the ticket");
  const std::vector<Problem> problems = FindProblems(check);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].flag, "--token-file");
  EXPECT_THAT(problems[0].sentence,
              HasSubstr("gpu-a knows this client as \"alice\", and gpu-b as \"bob\""));
}

TEST(ClusterCheck, ReportsAFailedCopy) {
  ClusterCheck check = Good(2);
  Fetching(check, 1, 0).copied = absl::UnavailableError("no room");
  const Problem problem = OnlyProblem(check);
  EXPECT_EQ(problem.server, "gpu-b");
  EXPECT_EQ(problem.sentence, "gpu-b can't fetch a tensor from gpu-a: no room.");
}

TEST(ClusterCheck, ReportsMoreOrFewerServersThanExpected) {
  ClusterCheck check = Good(2);
  check.requested_addresses = "tensord.local:50051";
  check.expected = 2;
  EXPECT_TRUE(FindProblems(check).empty());
  check.expected = 3;
  const Problem fewer = OnlyProblem(check);
  EXPECT_THAT(fewer.sentence,
              HasSubstr("tensord.local:50051 names 2 servers, and 3 are expected: check"));
  EXPECT_EQ(CheckExitCode({&fewer, 1}), 2);
  check.expected = 1;
  const Problem more = OnlyProblem(check);
  EXPECT_EQ(CheckExitCode({&more, 1}), 1);
}

TEST(ClusterCheck, ReportsRefusedCredentials) {
  ClusterCheck check = Good(2);
  Remove(check, 1, absl::UnauthenticatedError("show a token"));
  const Problem problem = OnlyProblem(check);
  EXPECT_THAT(problem.sentence, AllOf(HasSubstr("gpu-b rejects this client's credentials"),
                                      HasSubstr("tensorctl --token-file")));
  EXPECT_EQ(CheckExitCode({&problem, 1}), 2);
}

TEST(ClusterCheck, ReportsAServerThatIsTooOld) {
  ClusterCheck check = Good(3);
  check.servers[2].info.features = {"session-stream"};
  check.servers[2].info.peer_address.clear();
  for (size_t to : {0, 1}) Fetching(check, 2, to).request_status = absl::UnimplementedError("");
  for (size_t from : {0, 1}) Fail(Fetching(check, from, 2), absl::PermissionDeniedError("--peers"));
  const Problem problem = OnlyProblem(check);
  EXPECT_EQ(problem.server, "gpu-c");
  EXPECT_THAT(problem.sentence, HasSubstr("gpu-c is too old (tensord 0.1.0)"));
  EXPECT_EQ(CheckExitCode({&problem, 1}), 1);
}

TEST(ClusterCheck, ReportsAServerWithoutPeersOnce) {
  ClusterCheck check = Good(3);
  check.servers[0].info.features = {"session-stream"};
  for (size_t to : {1, 2}) Fail(Fetching(check, 0, to), absl::PermissionDeniedError("no --peers"));
  const Problem problem = OnlyProblem(check);
  EXPECT_EQ(problem.server, "gpu-a");
  EXPECT_EQ(problem.flag, "--peers");
  EXPECT_THAT(problem.sentence, HasSubstr("--peers=gpu-b.cluster:50051,gpu-c.cluster:50051."));
  EXPECT_THAT(problem.sentence, Not(HasSubstr("gpu-a.cluster")));
}

TEST(ClusterCheck, ReportsAnUnlistedServer) {
  ClusterCheck check = Good(3);
  Fail(Fetching(check, 0, 2), absl::PermissionDeniedError("not listed in --peers"));
  const Problem problem = OnlyProblem(check);
  EXPECT_EQ(problem.server, "gpu-a");
  EXPECT_EQ(problem.flag, "--peers");
  EXPECT_THAT(problem.sentence,
              HasSubstr("gpu-a may not fetch from gpu-c: add gpu-c.cluster:50051 to its --peers."));
}

TEST(ClusterCheck, ReportsMissingPeerPrincipals) {
  ClusterCheck check = Good(3);
  for (size_t from : {0, 1}) {
    Fetching(check, from, 2).check.status = absl::PermissionDeniedError("not known as a server");
  }
  const Problem problem = OnlyProblem(check);
  EXPECT_EQ(problem.server, "gpu-c");
  EXPECT_EQ(problem.flag, "--peer-principals");
  EXPECT_THAT(problem.sentence, AllOf(HasSubstr("gpu-c doesn't accept fetches from gpu-a, gpu-b"),
                                      HasSubstr("--peer-principals of gpu-c")));
  // If the principals are known, the message names them.
  Fetching(check, 0, 2).check.server.caller = "a";
  Fetching(check, 1, 2).check.server.caller = "dns:b";
  EXPECT_THAT(OnlyProblem(check).sentence,
              HasSubstr("add a,dns:b to the --peer-principals of gpu-c."));
}

TEST(ClusterCheck, ReportsRefusedPeerCredentials) {
  ClusterCheck check = Good(2);
  Fail(Fetching(check, 0, 1), absl::UnauthenticatedError("show a token"));
  const Problem problem = OnlyProblem(check);
  EXPECT_EQ(problem.server, "gpu-a");
  EXPECT_THAT(problem.sentence,
              AllOf(HasSubstr("gpu-a fails authentication at gpu-b (show a token)"),
                    HasSubstr("--peer-token-file"), HasSubstr("--peer-tls-cert")));
  // If the server requires a certificate, the message suggests no token.
  Fail(Fetching(check, 0, 1), absl::UnauthenticatedError("hung up: --tls-client-auth=require"));
  const Problem certificate = OnlyProblem(check);
  EXPECT_EQ(certificate.flag, "--peer-tls-cert");
  EXPECT_THAT(certificate.sentence, AllOf(HasSubstr("in the --tls-client-ca of gpu-b"),
                                          Not(HasSubstr("--peer-token-file"))));
}

TEST(ClusterCheck, NamesBothServersOfABrokenRoute) {
  ClusterCheck check = Good(3);
  Fail(Fetching(check, 0, 1), absl::UnavailableError("Connection timed out."));
  const Problem problem = OnlyProblem(check);
  EXPECT_EQ(problem.server, "gpu-b");
  EXPECT_EQ(problem.flag, "--advertise");
  EXPECT_THAT(problem.sentence,
              AllOf(HasSubstr("gpu-a can't reach gpu-b at gpu-b.cluster:50051 (Connection timed "
                              "out)"),
                    HasSubstr("network policy")));
}

TEST(ClusterCheck, ReportsAnAddressOfAnotherServer) {
  // Both servers advertise a loopback address, where each one finds itself.
  ClusterCheck check = Good(2);
  for (CheckedServer& server : check.servers) server.info.peer_address = "127.0.0.1:50051";
  Fetching(check, 0, 1).check.server = check.servers[0].info;
  Fetching(check, 1, 0).check.server = check.servers[1].info;
  const std::vector<Problem> problems = FindProblems(check);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].flag, "--advertise");
  EXPECT_THAT(problems[0].sentence, HasSubstr("gpu-b finds another server at 127.0.0.1:50051"));
  EXPECT_THAT(problems[0].sentence, HasSubstr("start gpu-a with --advertise"));
}

TEST(ClusterCheck, ReportsAServerWithoutAnAddress) {
  ClusterCheck check = Good(2);
  check.servers[1].info.peer_address.clear();
  Fail(Fetching(check, 0, 1), absl::PermissionDeniedError("not listed"));
  const Problem problem = OnlyProblem(check);
  EXPECT_EQ(problem.server, "gpu-b");
  EXPECT_THAT(problem.sentence, HasSubstr("gpu-b has no address for other servers"));
}

TEST(ClusterCheck, ReportsOneServerWithTwoNames) {
  ClusterCheck check = Good(2);
  check.servers[1].info.epoch = check.servers[0].info.epoch;
  for (CheckedPair& pair : check.pairs) pair.check.server.epoch = check.servers[0].info.epoch;
  EXPECT_THAT(OnlyProblem(check).sentence, HasSubstr("gpu-b and gpu-a are the same server"));
}

TEST(ClusterCheck, ReportsAServerThatDisconnects) {
  ClusterCheck check = Good(2);
  Fetching(check, 1, 0).request_status = absl::UnavailableError("Socket closed");
  const Problem problem = OnlyProblem(check);
  EXPECT_EQ(problem.server, "gpu-b");
  EXPECT_THAT(problem.sentence, HasSubstr("Socket closed"));
}

TEST(ClusterCheck, TextOfManyServersFitsTheWidth) {
  ClusterCheck check = Good(26);
  Fail(Fetching(check, 0, 1), absl::UnavailableError("no route to host"));
  const std::vector<Problem> problems = FindProblems(check);
  const std::string text = CheckText(check, problems, {.width = 80});
  for (absl::string_view line : absl::StrSplit(text, '\n')) EXPECT_LE(DisplayWidth(line), 80);
  EXPECT_THAT(text, HasSubstr("649 of 650 routes"));
  EXPECT_THAT(text, HasSubstr("gpu-a can't reach gpu-b"));
}

TEST(ClusterCheck, ListsPairsIfTheTableIsTooWide) {
  ClusterCheck check = Good(4);
  for (CheckedPair& pair : check.pairs) {
    pair.measured = CopyReport{.path = CopyPath::kSharedMemory,
                               .bytes = 1 << 30,
                               .transfer_time = absl::Milliseconds(500)};
  }
  const std::string text = CheckText(check, {}, {.width = 80});
  EXPECT_THAT(text, HasSubstr("gpu-c  gpu-a  150 µs, 2.00 GiB/s by shared memory"));
  for (absl::string_view line : absl::StrSplit(text, '\n')) EXPECT_LE(DisplayWidth(line), 80);
}

TEST(ClusterCheck, OmitsGroupsIfNoServerIsReachable) {
  ClusterCheck check = Good(2);
  for (size_t i : {0, 1}) Remove(check, i, absl::UnavailableError("no answer in 10s"));
  EXPECT_THAT(CheckText(check, FindProblems(check), {}), Not(HasSubstr("group")));
}

TEST(ClusterCheck, ReportsAnUntrustedCertificate) {
  ClusterCheck check = Good(2);
  Remove(check, 1, absl::UnavailableError("SSL_ERROR_SSL: certificate verify failed"));
  const Problem problem = OnlyProblem(check);
  EXPECT_EQ(problem.flag, "--tls-cert");
  EXPECT_THAT(problem.sentence, AllOf(HasSubstr("gpu-b"), HasSubstr("--tls-ca")));
}

TEST(ClusterCheck, ReplacesControlCharactersOfServers) {
  ClusterCheck check = Good(2);
  check.servers[0].info.version = "0.1\x1b[2J";
  check.servers[1].info.peer_address = "b\x1b[2J:1";
  Fail(Fetching(check, 0, 1), absl::UnavailableError("\x1b[2J"));
  EXPECT_THAT(CheckText(check, FindProblems(check), {}), Not(HasSubstr("\x1b")));
}

TEST(ClusterCheck, IsPrintedAsJson) {
  ClusterCheck check = Good(2);
  Fail(Fetching(check, 0, 1), absl::UnavailableError("no route to host \xff"));
  const auto json = nlohmann::json::parse(CheckJson(check, FindProblems(check)));
  EXPECT_EQ(json["good"], false);
  EXPECT_EQ(json["servers"][1]["peer_address"], "gpu-b.cluster:50051");
  // A pair goes from the source server to the server that fetches.
  EXPECT_EQ(json["pairs"][0]["from"], "gpu-a");
  EXPECT_EQ(json["pairs"][0]["to"], "gpu-b");
  EXPECT_EQ(json["pairs"][0]["state"], "ok");
  EXPECT_DOUBLE_EQ(json["pairs"][0]["round_trip_seconds"], 150e-6);
  EXPECT_EQ(json["pairs"][1]["from"], "gpu-b");
  EXPECT_EQ(json["pairs"][1]["state"], "unreachable");
  EXPECT_EQ(json["group"]["state"], "ok");
  EXPECT_EQ(json["problems"][0]["server"], "gpu-b");
  EXPECT_EQ(json["problems"][0]["flag"], "--advertise");
}

}  // namespace
}  // namespace tensord::cli
