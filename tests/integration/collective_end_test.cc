// Groups whose members are late, leave or are killed, and requests that can't form a group.
#include <signal.h>

#include <filesystem>
#include <fstream>

#include "tensord/tests/integration/collective_fixture.h"

namespace tensord::integration {
namespace {

class CollectiveEndTest : public CollectiveFixture {
 protected:
  // All-reduces tensor 1 again and again, until that fails. Returns the errors, by rank.
  std::vector<absl::Status> ReduceWithoutEnd(const TensorSpec& spec) {
    return AtOnce(kServers, [&](int rank) {
      absl::Status status;
      for (uint64_t output = 2; status.ok(); ++output) {
        status = Run(rank, Op(kAllReduce, spec, 1, output)).status();
        if (status.ok()) status = session(rank).Delete({output});
      }
      return status;
    });
  }
};

TEST_F(CollectiveEndTest, LateMemberEndsTheGroup) {
  MakeGroup({.timeout_ms = 3000});
  CreateAll(1, {1, 2});
  const auto stream = Promise(session(2), 20, kPair);
  std::vector<v1::Collective> ops(kServers, Op(kAllReduce, kPair, 1, 2));
  ops[2].set_input(20);
  for (const auto& made : RunEach(ops)) {
    ExpectError(made, Code::kDeadlineExceeded, {"3000 ms", "rank 2", "another group"});
  }
  // Later operations fail at once.
  for (int rank = 0; rank < kServers; ++rank) {
    ExpectError(Run(rank, Barrier(3)), Code::kDeadlineExceeded, {"rank 2"});
  }
  const GroupOptions again{.member = 2, .id = "another group id"};
  MakeGroup(again);
  v1::Collective barrier = Barrier(4);
  barrier.set_member(2);
  for (const auto& made : RunAll(barrier)) EXPECT_TRUE(made.ok()) << made.status();
}

TEST_F(CollectiveEndTest, KilledMemberEndsTheGroupAndANewGroupWorks) {
  MakeGroup();
  CreateAll(1, {1, 2});
  const auto stream = Promise(session(3), 20, kPair);
  std::vector<v1::Collective> ops(kServers, Op(kAllReduce, kPair, 1, 2));
  ops[3].set_input(20);
  auto waiting = std::async(std::launch::async, [&] { return RunEach(ops); });
  servers_[3].daemon->Signal(SIGKILL);
  const auto made = waiting.get();
  for (int rank = 0; rank < 3; ++rank) {
    ExpectError(made[rank], Code::kAborted, {"rank 3", "another group"});
    ExpectError(Run(rank, Barrier(3)), Code::kAborted, {"rank 3"});
    ASSERT_TRUE(Leave(rank).ok());
  }
  Restart(3);
  MakeGroup({.id = "another group id"});
  ExpectGroupWorks(50);
}

TEST_F(CollectiveEndTest, KilledMemberEndsARunningOperation) {
  const int64_t count = 8 << 20;
  const TensorSpec spec{DType::kFloat32, Shape({count})};
  MakeGroup();
  for (int rank = 0; rank < kServers; ++rank) ASSERT_TRUE(session(rank).Ones(1, {count}).ok());
  // The kill comes at an arbitrary moment of an operation.
  auto waiting = std::async(std::launch::async, [&] { return ReduceWithoutEnd(spec); });
  ASSERT_TRUE(Eventually([&] { return servers_[1].daemon->MemoryBytes("VmHWM") > 80 << 20; }));
  servers_[1].daemon->Signal(SIGKILL);
  const std::vector<absl::Status> ends = waiting.get();
  for (int rank : {0, 2, 3}) EXPECT_EQ(ends[rank].code(), Code::kAborted) << ends[rank];
  for (int rank : {0, 2, 3}) {
    EXPECT_TRUE(Eventually([&] { return UsedBytes(client(rank), "cpu:0") == 4 * count; }))
        << "the operations' memory isn't freed";
  }
}

TEST_F(CollectiveEndTest, StoppedMemberEndsARunningOperation) {
  const int64_t count = 8 << 20;
  const TensorSpec spec{DType::kFloat32, Shape({count})};
  MakeGroup({.timeout_ms = 3000});
  for (int rank = 0; rank < kServers; ++rank) ASSERT_TRUE(session(rank).Ones(1, {count}).ok());
  client(1).set_deadline_seconds(5);
  auto waiting = std::async(std::launch::async, [&] { return ReduceWithoutEnd(spec); });
  ASSERT_TRUE(Eventually([&] { return servers_[1].daemon->MemoryBytes("VmHWM") > 80 << 20; }));
  servers_[1].daemon->Signal(SIGSTOP);
  const std::vector<absl::Status> ends = waiting.get();
  servers_[1].daemon->Signal(SIGCONT);
  // A member whose timeout expires closes its connections, so other members may see ABORTED.
  for (int rank : {0, 2, 3}) {
    EXPECT_THAT(ends[rank].code(), testing::AnyOf(Code::kDeadlineExceeded, Code::kAborted))
        << ends[rank];
  }
}

TEST_F(CollectiveEndTest, LeavingEndsOperationsOfOtherMembers) {
  MakeGroup();
  auto waiting = std::async(std::launch::async, [&] {
    return AtOnce(3, [&](int rank) { return Run(rank, Barrier(2)); });
  });
  ASSERT_TRUE(Leave(3).ok());
  for (const auto& made : waiting.get()) ExpectError(made, Code::kAborted, {"rank 3", "left"});
  ExpectError(Leave(3), Code::kNotFound, {"member 1"});
  ExpectError(Run(3, Barrier(2)), Code::kNotFound, {"member 1", "JoinGroup"});
}

TEST_F(CollectiveEndTest, LeavingEndsOwnOperations) {
  MakeGroup();
  auto waiting = std::async(std::launch::async, [&] { return Run(0, Barrier(2)); });
  ASSERT_TRUE(Eventually([&] {
    const auto list = session(0).List();
    return list.ok() && list->tensors_size() == 1;
  }));
  ASSERT_TRUE(Leave(0).ok());
  ExpectError(waiting.get(), Code::kCancelled, {"left its group"});
}

TEST_F(CollectiveEndTest, ClosingASessionEndsItsMembers) {
  MakeGroup();
  auto waiting = std::async(std::launch::async, [&] {
    return AtOnce(3, [&](int rank) { return Run(rank, Barrier(2)); });
  });
  ASSERT_TRUE(session(3).Close().ok());
  for (const auto& made : waiting.get()) ExpectError(made, Code::kAborted, {"rank 3", "left"});
}

TEST_F(CollectiveEndTest, OperationOfAClosedSessionEndsForTheOtherMembers) {
  MakeGroup();
  auto waiting = std::async(std::launch::async, [&] { return Run(3, Barrier(2)); });
  ASSERT_TRUE(Eventually([&] {
    const auto list = session(3).List();
    return list.ok() && list->tensors_size() == 1;
  }));
  ASSERT_TRUE(session(3).Close().ok());
  EXPECT_FALSE(waiting.get().ok());
  const auto run_others = [&](uint64_t output) {
    return AtOnce(3, [&](int rank) { return Run(rank, Barrier(output)); });
  };
  for (const auto& made : run_others(2)) EXPECT_TRUE(made.ok()) << made.status();
  for (const auto& made : run_others(3)) ExpectError(made, Code::kAborted, {"rank 3", "left"});
}

// Returns the number of open descriptors of a daemon.
int64_t Descriptors(const DaemonProcess& daemon) {
  int64_t count = 0;
  const std::string folder = absl::StrCat("/proc/", daemon.pid(), "/fd");
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

// Returns the number of a daemon's threads that serve group members.
int64_t MemberThreads(const DaemonProcess& daemon) {
  int64_t count = 0;
  const std::string folder = absl::StrCat("/proc/", daemon.pid(), "/task");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path() / "comm");
    std::string name;
    if (file >> name && name == "group-member") ++count;
  }
  return count;
}

TEST_F(CollectiveEndTest, MembersReleaseThreadsAndDescriptors) {
  CreateAll(1, {1, 2});
  const DaemonProcess& daemon = *servers_[0].daemon;
  const int64_t descriptors = Descriptors(daemon);
  for (int round = 0; round < 3; ++round) {
    MakeGroup();
    EXPECT_TRUE(Eventually([&] { return MemberThreads(daemon) == 1; }));
    EXPECT_GE(Descriptors(daemon), descriptors + 3);
    ExpectGroupWorks(50);
    for (int rank = 0; rank < kServers; ++rank) {
      ASSERT_TRUE(session(rank).Delete({50, 51}).ok());
      ASSERT_TRUE(Leave(rank).ok());
    }
  }
  MakeGroup();
  const auto stream = Promise(session(0), 20, kPair);
  auto waiting =
      std::async(std::launch::async, [&] { return Run(0, Op(kAllReduce, kPair, 20, 2)); });
  stream->Cancel();
  ASSERT_TRUE(session(0).Close().ok());
  EXPECT_FALSE(waiting.get().ok());
  EXPECT_TRUE(Eventually([&] { return MemberThreads(daemon) == 0; }));
  EXPECT_TRUE(Eventually([&] { return Descriptors(daemon) <= descriptors; }));
}

TEST_F(CollectiveEndTest, DrainEndsTheServersMembers) {
  flags_.push_back("--grace-seconds=1");
  Restart(0);
  MakeGroup();
  auto waiting = std::async(std::launch::async, [&] {
    return AtOnce(3, [&](int rank) { return Run(rank, Barrier(2)); });
  });
  ASSERT_TRUE(Eventually([&] {
    const auto list = session(0).List();
    return list.ok() && list->tensors_size() == 1;
  }));
  servers_[0].daemon->ExpectTerminatesCleanly();
  const auto made = waiting.get();
  EXPECT_FALSE(made[0].ok());
  for (int rank : {1, 2}) ExpectError(made[rank], Code::kAborted, {"rank 0"});
}

TEST_F(CollectiveEndTest, ConnectGroupFailsIfAMemberIsMissing) {
  const std::vector<std::string> addresses = JoinAll({.timeout_ms = 500});
  const auto connected = AtOnce(3, [&](int rank) { return Connect(rank, addresses); });
  for (const absl::Status& status : connected) {
    EXPECT_THAT(status.code(), testing::AnyOf(Code::kDeadlineExceeded, Code::kAborted)) << status;
  }
}

TEST_F(CollectiveEndTest, RejectsAddressesOfAnotherGroup) {
  std::vector<std::string> addresses = JoinAll();
  std::vector<std::string> others = JoinAll({.member = 2, .id = "another group id"});
  std::vector<std::string> mixed = addresses;
  mixed[2] = others[2];
  ExpectError(Connect(0, mixed), Code::kInvalidArgument, {"rank 2", "group_id"});
  std::vector<std::string> swapped = addresses;
  std::swap(swapped[1], swapped[2]);
  ExpectError(Connect(0, swapped), Code::kInvalidArgument, {"rank 1", "rank 2 of 4"});
  ExpectError(Connect(0, {addresses[0]}), Code::kInvalidArgument, {"4 members", "1 addresses"});
  std::vector<std::string> altered = addresses;
  altered[3][20] ^= 1;
  ExpectError(Connect(0, altered), Code::kInvalidArgument, {"rank 3"});
  ExpectError(Connect(0, {"", "", "", ""}), Code::kInvalidArgument, {"rank 0", "JoinGroup"});
  ExpectError(Run(0, Barrier(2)), Code::kFailedPrecondition, {"ConnectGroup"});
  // The refused calls don't affect the group.
  for (const absl::Status& connected :
       AtOnce(kServers, [&](int rank) { return Connect(rank, addresses); })) {
    ASSERT_TRUE(connected.ok()) << connected;
  }
  EXPECT_TRUE(Connect(0, addresses).ok()) << "a retry, as after a lost answer";
  ExpectGroupWorks(50);
}

TEST_F(CollectiveEndTest, RejectsInvalidJoinRequests) {
  v1::JoinGroupRequest right;
  right.set_session(session(0).id());
  right.set_member(1);
  right.set_device("cpu:0");
  right.set_size(2);
  right.set_group_id(std::string(16, 'x'));
  const auto refused = [&](const std::function<void(v1::JoinGroupRequest&)>& change, Code code,
                           const std::vector<std::string>& words) {
    v1::JoinGroupRequest request = right;
    change(request);
    ExpectError(client(0).Call<v1::JoinGroupResponse>("JoinGroup", request), code, words);
  };
  using Request = v1::JoinGroupRequest;
  refused([](Request& r) { r.set_member(0); }, Code::kInvalidArgument, {"number"});
  refused([](Request& r) { r.set_size(0); }, Code::kInvalidArgument, {"1024"});
  refused([](Request& r) { r.set_size(1025); }, Code::kInvalidArgument, {"1025", "1024"});
  refused([](Request& r) { r.set_rank(2); }, Code::kInvalidArgument, {"rank 2"});
  refused([](Request& r) { r.set_group_id("short"); }, Code::kInvalidArgument, {"16"});
  refused([](Request& r) { r.set_timeout_milliseconds(-1); }, Code::kInvalidArgument, {"-1"});
  refused([](Request& r) { r.set_timeout_milliseconds(3600001); }, Code::kInvalidArgument, {});
  refused([](Request& r) { r.add_member_names("a"); }, Code::kInvalidArgument, {"1 member_names"});
  refused(
      [](Request& r) {
        r.add_member_names("a");
        r.add_member_names(std::string(513, 'b'));
      },
      Code::kInvalidArgument, {"512"});
  refused([](Request& r) { r.set_device("cpu:7"); }, Code::kNotFound, {"cpu:7"});
  refused([](Request& r) { r.set_session("unknown"); }, Code::kNotFound, {});
  ASSERT_TRUE(client(0).Call<v1::JoinGroupResponse>("JoinGroup", right).ok());
  refused([](Request&) {}, Code::kAlreadyExists, {"member 1"});
}

class CollectiveLimitTest : public GroupFixture {
 protected:
  CollectiveLimitTest()
      : GroupFixture({"--max-group-members-per-session=2", "--max-bytes-per-session=1MiB"}) {}
};

TEST_F(CollectiveLimitTest, LimitsMembersPerSession) {
  ASSERT_TRUE(Join(0, {.member = 1}).ok());
  ASSERT_TRUE(Join(0, {.member = 2}).ok());
  const auto refused = Join(0, {.member = 3});
  ExpectError(refused, Code::kResourceExhausted, {"--max-group-members-per-session=2"});
  ASSERT_TRUE(Leave(0, 2).ok());
  EXPECT_TRUE(Join(0, {.member = 3}).ok());
}

TEST_F(CollectiveLimitTest, ResultsAreChargedToTheSession) {
  MakeGroup();
  const int64_t count = 1 << 17;
  for (int rank = 0; rank < kServers; ++rank) ASSERT_TRUE(session(rank).Ones(1, {count}).ok());
  for (const auto& made :
       RunAll(Op(v1::COLLECTIVE_KIND_ALL_GATHER, {DType::kFloat32, Shape({count})}, 1, 2))) {
    ExpectError(made, Code::kResourceExhausted, {"--max-bytes-per-session=1048576"});
  }
  const auto made =
      RunAll(Op(v1::COLLECTIVE_KIND_ALL_REDUCE, {DType::kFloat32, Shape({count})}, 1, 2));
  for (const auto& result : made) EXPECT_TRUE(result.ok()) << result.status();
}

class CollectiveOffTest : public DaemonFixture {
 protected:
  CollectiveOffTest() : DaemonFixture({"--collectives=off"}) {}
};

TEST_F(CollectiveOffTest, JoinGroupNamesTheFlagThatTurnsCollectivesOff) {
  v1::JoinGroupRequest request;
  request.set_session(session_->id());
  ExpectError(client_->Call<v1::JoinGroupResponse>("JoinGroup", request), Code::kFailedPrecondition,
              {"--collectives"});
  const auto info = client_->Call<v1::ServerInfo>("GetServerInfo", v1::GetServerInfoRequest());
  EXPECT_THAT(info->features(), testing::Not(testing::Contains("collectives")));
}

TEST(CollectiveFlagTest, RefusesAddressesOfOtherMachinesAtStart) {
  for (const std::string wanted : {"192.0.2.1", "nosuch0", "127.0.0.1/40", "0.0.0.0"}) {
    std::string output;
    const auto exit_code = RunDaemon({"--devices=cpu", "--collectives=" + wanted}, &output);
    ASSERT_TRUE(exit_code.ok()) << exit_code.status();
    EXPECT_EQ(*exit_code, 1);
    EXPECT_THAT(output, testing::HasSubstr("--collectives=" + wanted));
  }
}

}  // namespace
}  // namespace tensord::integration
