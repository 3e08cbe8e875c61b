// Runs tensorctl against several servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/tests/integration/daemon_process.h"
#include "tensord/tests/integration/identity_fixture.h"
#include "tensord/tests/run_command.h"

namespace tensord::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kAnyPeer[] = "--peers=127.0.0.1:*";

class TensorctlClusterTest : public IdentityFixture {
 protected:
  std::string Start(std::vector<std::string> flags) {
    flags.push_back("--devices=cpu=64MiB");
    auto daemon = DaemonProcess::Start(flags);
    EXPECT_TRUE(daemon.ok()) << daemon.status();
    if (!daemon.ok()) return "";
    daemons_.push_back(*std::move(daemon));
    return addresses_.emplace_back(daemons_.back()->address());
  }

  // Runs tensorctl. $COLUMNS is so large that each sentence stays on one line.
  CommandResult Tensorctl(const std::string& arguments) {
    const std::string command = absl::StrCat(
        "env -u TENSORD_SERVER COLUMNS=1000 TENSORD_SERVERS=", absl::StrJoin(addresses_, ","),
        " " TENSORCTL_PATH " ", arguments);
    return RunCommand(command, folder_.File("errors"));
  }

  nlohmann::json Problems(const CommandResult& result) {
    const auto json = nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
    return json.is_discarded() ? nlohmann::json(result.out + result.err) : json["problems"];
  }

  std::vector<std::unique_ptr<DaemonProcess>> daemons_;
  std::vector<std::string> addresses_;
};

TEST_F(TensorctlClusterTest, ReportsServersThatReachEachOther) {
  for (int i = 0; i < 3; ++i) Start({kAnyPeer});
  const CommandResult check = Tensorctl("cluster check");
  EXPECT_EQ(check.exit_code, 0) << check.out << check.err;
  EXPECT_THAT(check.out,
              AllOf(HasSubstr("3 of 3 servers can be used; 6 of 6 routes between them work."),
                    HasSubstr("A group of 3 devices, one on each server, was created and passed a "
                              "barrier.")));
  EXPECT_THAT(Problems(Tensorctl("cluster check --json")), IsEmpty());
  EXPECT_EQ(Tensorctl("health").exit_code, 0);
  const CommandResult devices = Tensorctl("devices");
  EXPECT_EQ(devices.exit_code, 0);
  for (const std::string& address : addresses_) {
    EXPECT_THAT(devices.out, HasSubstr(address + "/cpu:0"));
  }
}

TEST_F(TensorctlClusterTest, MeasuresBandwidth) {
  Start({kAnyPeer});
  Start({kAnyPeer});
  const CommandResult result = Tensorctl("cluster check --measure 4 --json");
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  const auto json = nlohmann::json::parse(result.out);
  ASSERT_EQ(json["pairs"].size(), 2u);
  for (const auto& pair : json["pairs"]) {
    const auto& measured = pair["measured"];
    EXPECT_EQ(measured["bytes"], 4 << 20);
    EXPECT_GT(measured["bytes_per_second"], 0);
    EXPECT_GE(measured["total_seconds"], measured["transfer_seconds"]);
  }
  EXPECT_THAT(Tensorctl("cluster check --measure 4").out,
              HasSubstr("/s by " + json["pairs"][0]["measured"]["path"].get<std::string>()));
  const CommandResult too_much = Tensorctl("cluster check --measure 65");
  EXPECT_EQ(too_much.exit_code, 1) << "a device has no more than 64 MiB";
  EXPECT_THAT(too_much.out, HasSubstr("64"));
}

TEST_F(TensorctlClusterTest, ReportsALostServer) {
  for (int i = 0; i < 3; ++i) Start({kAnyPeer});
  daemons_[1]->Signal(SIGKILL);
  ASSERT_TRUE(daemons_[1]->WaitForEnd().ok());
  const CommandResult devices = Tensorctl("devices");
  EXPECT_EQ(devices.exit_code, 1);
  EXPECT_THAT(devices.out,
              AllOf(HasSubstr(addresses_[0] + "/cpu:0"), HasSubstr(addresses_[1] + " is lost: "),
                    HasSubstr(addresses_[2] + "/cpu:0")));
  const auto json = nlohmann::json::parse(Tensorctl("devices --json").out);
  EXPECT_EQ(json["servers"][1]["lost"], true);
  ASSERT_EQ(json["devices"].size(), 2u);
  EXPECT_EQ(json["devices"][1]["server"], addresses_[2]);
  for (const char* command : {"info", "tensors"}) {
    const CommandResult result = Tensorctl(command);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.out, HasSubstr(addresses_[1] + " is lost: "));
  }
  EXPECT_EQ(Tensorctl("health").exit_code, 2);
  const CommandResult check = Tensorctl("cluster check");
  EXPECT_EQ(check.exit_code, 2);
  EXPECT_THAT(check.out, AllOf(HasSubstr(addresses_[1] + " can't be reached (Connection refused)"),
                               HasSubstr("2 of 3 servers can be used; 2 of 6 routes")));
}

TEST_F(TensorctlClusterTest, FailsIfNoServerIsReachable) {
  addresses_ = {"127.0.0.1:1", "127.0.0.1:2"};
  EXPECT_EQ(Tensorctl("devices").exit_code, 1);
  EXPECT_EQ(Tensorctl("cluster check").exit_code, 2);
}

TEST_F(TensorctlClusterTest, ReportsMissingPeers) {
  const std::string a = Start({kAnyPeer});
  const std::string b = Start({});
  const std::string c = Start({"--peers=" + b});
  const CommandResult check = Tensorctl("cluster check");
  EXPECT_EQ(check.exit_code, 1) << check.out << check.err;
  EXPECT_THAT(check.out,
              AllOf(HasSubstr(absl::StrCat(b, " fetches from no server: start it with --peers=", a,
                                           ",", c, ".\n")),
                    HasSubstr(absl::StrCat(c, " may not fetch from ", a, ": add ", a,
                                           " to its --peers.\n")),
                    HasSubstr("3 of 6 routes")));
}

TEST_F(TensorctlClusterTest, ReportsAWrongAdvertisedAddress) {
  const std::string a = Start({kAnyPeer});
  const std::string b = Start({kAnyPeer, "--advertise=" + a});
  const std::string c = Start({kAnyPeer, "--advertise=127.0.0.1:1"});
  const auto problems = Problems(Tensorctl("cluster check --json"));
  ASSERT_EQ(problems.size(), 2u) << problems;
  EXPECT_EQ(problems[0]["server"], b);
  EXPECT_THAT(std::string(problems[0]["message"]), HasSubstr("finds another server at " + a));
  EXPECT_EQ(problems[1]["server"], c);
  EXPECT_THAT(std::string(problems[1]["message"]), HasSubstr("can't reach " + c));
  for (const auto& problem : problems) EXPECT_EQ(problem["flag"], "--advertise");
}

TEST_F(TensorctlClusterTest, ReportsMissingPeerCredentials) {
  const std::string tokens =
      "--token-file=" + folder_.Write("tokens", Line("alice", "alices") + Line("a", "of-a"));
  const std::string as_a = "--peer-token-file=" + folder_.Write("a.token", "of-a");
  const std::string alice = " --token-file " + folder_.Write("alice.token", "alices");
  const std::string a = Start({kAnyPeer, tokens, as_a, "--peer-principals=a"});
  const std::string b = Start({kAnyPeer, tokens});
  const auto problems = Problems(Tensorctl("cluster check --json" + alice));
  ASSERT_EQ(problems.size(), 2u) << problems;
  EXPECT_EQ(problems[0]["server"], b);
  EXPECT_EQ(problems[0]["flag"], "--peer-principals");
  EXPECT_EQ(problems[1]["server"], b);
  EXPECT_EQ(problems[1]["flag"], "--peer-token-file");
  const CommandResult rejected = Tensorctl("cluster check");
  EXPECT_EQ(rejected.exit_code, 2);
  EXPECT_THAT(rejected.out, HasSubstr(a + " rejects this client's credentials"));
}

// The caller is alice on one server and bob on the other. Each tensor belongs to one principal, so
// none can be copied between the servers.
TEST_F(TensorctlClusterTest, ReportsACallerWithTwoNames) {
  const std::string as_server = "--peer-token-file=" + folder_.Write("server.token", "servers");
  const auto flags = [&](const std::string& file, const std::string& name) {
    const std::string tokens = Line(name, "ours") + Line("server", "servers");
    return std::vector<std::string>{kAnyPeer, "--peer-principals=server", as_server,
                                    "--token-file=" + folder_.Write(file, tokens)};
  };
  const std::string a = Start(flags("tokens.a", "alice"));
  const std::string b = Start(flags("tokens.b", "bob"));
  const std::string ours = " --token-file " + folder_.Write("ours.token", "ours");
  const CommandResult check = Tensorctl("cluster check" + ours);
  EXPECT_EQ(check.exit_code, 1) << check.err;
  EXPECT_THAT(check.out, HasSubstr(absl::StrCat(b, " knows this client as \"bob\", and ", a,
                                                " as \"alice\", so tensors aren't copied")));
  const auto json = nlohmann::json::parse(Tensorctl("cluster check --json" + ours).out);
  EXPECT_EQ(json["pairs"][0]["state"], "two names");
  ASSERT_EQ(json["problems"].size(), 2u);
  for (const auto& problem : json["problems"]) EXPECT_EQ(problem["flag"], "--token-file");
}

TEST_F(TensorctlClusterTest, ReportsAServerWithoutCollectives) {
  const std::string a = Start({kAnyPeer});
  const std::string b = Start({kAnyPeer, "--collectives=off"});
  const CommandResult check = Tensorctl("cluster check");
  EXPECT_EQ(check.exit_code, 1);
  EXPECT_THAT(check.out, HasSubstr(b + " takes no part in groups"));
  addresses_ = {b};
  const CommandResult alone = Tensorctl("cluster check");
  EXPECT_EQ(alone.exit_code, 0);
  EXPECT_THAT(alone.out, HasSubstr("No server takes part in groups"));
}

TEST_F(TensorctlClusterTest, ReportsAServerOnAnotherNetwork) {
  const std::string a = Start({kAnyPeer, "--collectives=127.0.0.1/32"});
  const std::string b = Start({kAnyPeer, "--collectives=127.0.0.1/32"});
  const std::string c = Start({kAnyPeer, "--collectives=127.0.0.2/32"});
  const auto problems = Problems(Tensorctl("cluster check --json"));
  ASSERT_EQ(problems.size(), 1u) << problems;
  EXPECT_EQ(problems[0]["server"], c);
  EXPECT_EQ(problems[0]["flag"], "--collectives");
  EXPECT_THAT(std::string(problems[0]["message"]),
              HasSubstr(absl::StrCat(c, " can't make a group with ", a, ", ", b)));
  EXPECT_EQ(Tensorctl("cluster check").exit_code, 1);
}

TEST_F(TensorctlClusterTest, ChecksTheExpectedNumberOfServers) {
  for (int i = 0; i < 2; ++i) Start({kAnyPeer});
  EXPECT_EQ(Tensorctl("cluster check --expect 2").exit_code, 0);
  const CommandResult fewer = Tensorctl("cluster check --expect 3");
  EXPECT_EQ(fewer.exit_code, 2);
  EXPECT_THAT(fewer.out, HasSubstr("names 2 servers, and 3 are expected"));
  EXPECT_EQ(Tensorctl("cluster check --expect=1").exit_code, 1);
  EXPECT_THAT(Tensorctl("cluster check --expect none").err, HasSubstr("--expect takes"));
}

// A program that reads the JSON of one server can read that of several.
TEST_F(TensorctlClusterTest, JsonHasTheSameStructureForOneServer) {
  for (int i = 0; i < 2; ++i) Start({kAnyPeer});
  for (const std::string command : {"devices", "info", "tensors"}) {
    const auto several = nlohmann::json::parse(Tensorctl(command + " --json").out);
    const auto one =
        nlohmann::json::parse(Tensorctl(command + " --json --server " + addresses_[0]).out);
    ASSERT_EQ(several["servers"].size(), 2u) << several;
    ASSERT_EQ(one["servers"].size(), 1u) << one;
    EXPECT_EQ(several.size(), one.size());
    EXPECT_EQ(several["servers"][0].size(), one["servers"][0].size());
    EXPECT_EQ(one["servers"][0]["server"], addresses_[0]);
  }
}

}  // namespace
}  // namespace tensord::integration
