// Collective operations, and parallel layers built on them, through the client.
#include <signal.h>

#include <atomic>
#include <chrono>
#include <complex>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tensord/tests/integration/cluster_fixture.h"

namespace tensord::integration {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class GroupTest : public ClusterFixture {
 protected:
  GroupTest() : ClusterFixture(3) {}

  Group MakeGroup(std::vector<Device> devices, absl::Duration timeout = absl::Seconds(30)) {
    auto group = Group::Create(std::move(devices), {.timeout = timeout});
    EXPECT_TRUE(group.ok()) << group.status();
    return group.ok() ? *group : Group();
  }
  Group OverAll() { return MakeGroup(cluster_.devices()); }

  // Returns one tensor of `count` elements for each rank: rank, rank + 10, rank + 20, …
  std::vector<Tensor> Ranks(const Group& group, int64_t count) {
    std::vector<Tensor> tensors;
    for (int rank = 0; rank < group.size(); ++rank) {
      std::vector<float> values;
      for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(rank + 10 * i));
      tensors.push_back(FromVector(group.devices()[rank], values));
    }
    return tensors;
  }
};

TEST_F(GroupTest, EveryOperationOverAllDevices) {
  const Group group = OverAll();
  ASSERT_EQ(group.size(), 6);
  for (const Tensor& y : group.AllReduce(Ranks(group, 2))) {
    EXPECT_THAT(*y.Read<float>(), ElementsAre(15, 75));
  }
  for (const Tensor& y : group.AllReduce(Ranks(group, 2), Reduction::kMean)) {
    EXPECT_THAT(*y.Read<float>(), ElementsAre(2.5, 12.5));
  }
  for (const Tensor& y : group.AllReduce(Ranks(group, 2), Reduction::kMax)) {
    EXPECT_THAT(*y.Read<float>(), ElementsAre(5, 15));
  }
  for (const Tensor& y : group.AllGather(Ranks(group, 1))) {
    EXPECT_THAT(*y.Read<float>(), ElementsAre(0, 1, 2, 3, 4, 5));
  }
  const std::vector<Tensor> scattered = group.ReduceScatter(Ranks(group, 12));
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_THAT(*scattered[rank].Read<float>(),
                ElementsAre(15 + 60 * 2 * rank, 15 + 60 * (2 * rank + 1)));
  }
  const Tensor from = FromVector<float>(group.devices()[4], {7, 8});
  for (const Tensor& y : group.Broadcast(from)) {
    EXPECT_THAT(*y.Read<float>(), ElementsAre(7, 8));
  }
  EXPECT_TRUE(group.Barrier().ok());
}

// Each thread stands for a program with one member. A map exchanges the strings.
class MemberTest : public GroupTest {
 protected:
  static constexpr int kSize = 3;

  // Returns an all-gather between the threads.
  GroupMember::Exchange ExchangeOf(int rank) {
    return [this, rank, call = std::make_shared<size_t>(0)](
               const std::string& own) -> absl::StatusOr<std::vector<std::string>> {
      const size_t round = (*call)++;
      std::unique_lock lock(mutex_);
      exchanged_[round][rank] = own;
      changed_.notify_all();
      changed_.wait(lock, [&] { return exchanged_[round].size() == kSize; });
      std::vector<std::string> all;
      for (const auto& [_, text] : exchanged_[round]) all.push_back(text);
      return all;
    };
  }

  // Runs `body` with a member of each rank at once.
  void WithMembers(const std::function<void(int, const GroupMember&)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kSize; ++rank) {
      threads.emplace_back([&, rank] {
        const auto member =
            GroupMember::Join(cluster_.devices()[rank * 2], rank, kSize, ExchangeOf(rank));
        ASSERT_TRUE(member.ok()) << member.status();
        body(rank, *member);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<size_t, std::map<int, std::string>> exchanged_;
};

TEST_F(MemberTest, EveryOperationOfMembersOfSeveralPrograms) {
  WithMembers([](int rank, const GroupMember& member) {
    EXPECT_EQ(member.rank(), rank);
    EXPECT_EQ(member.size(), kSize);
    const auto r = static_cast<float>(rank);
    const Tensor x = FromVector<float>(member.device(), {r, r + 10, r + 20});
    EXPECT_THAT(*member.AllReduce(x).Read<float>(), ElementsAre(3, 33, 63));
    EXPECT_THAT(*member.AllReduce(x, Reduction::kMean).Read<float>(), ElementsAre(1, 11, 21));
    EXPECT_THAT(*member.AllGather(x).Read<float>(), ElementsAre(0, 10, 20, 1, 11, 21, 2, 12, 22));
    EXPECT_THAT(*member.ReduceScatter(x).Read<float>(), ElementsAre(3 + 30 * r));
    EXPECT_THAT(*member.Broadcast(x, 2).Read<float>(), ElementsAre(2, 12, 22));
    EXPECT_TRUE(member.Barrier().ok());
    EXPECT_THAT(member.Broadcast(x, kSize).status().message(), HasSubstr("no rank 3 of 3"));
  });
}

TEST_F(MemberTest, JoinFailsForAllMembersIfOneCannotJoin) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      const auto exchange = ExchangeOf(rank);
      // The id that rank 2 gets is too short, so its Join fails.
      const auto broken = [&](const std::string& own) {
        auto all = exchange(own);
        if (rank == 2 && own.size() > 16) (*all)[0].resize(3);
        return all;
      };
      const auto member = GroupMember::Join(cluster_.devices()[rank * 2], rank, kSize, broken,
                                            {.timeout = absl::Seconds(5)});
      EXPECT_FALSE(member.ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(MemberTest, JoinRefusesWrongRanksAndExchanges) {
  const Device device = cluster_.devices()[0];
  const auto one = [](const std::string& own) { return std::vector<std::string>{own}; };
  EXPECT_THAT(GroupMember::Join(device, 2, 2, one).status().message(), HasSubstr("no rank 2"));
  EXPECT_THAT(GroupMember::Join(device, 0, 2, one).status().message(),
              HasSubstr("returned 1 strings for 2 members"));
  EXPECT_TRUE(GroupMember::Join(device, 0, 1, one).ok());
  EXPECT_FALSE(GroupMember().AllReduce(Full(device, {1}, 1.0f)).ok());
}

TEST_F(GroupTest, GathersAndBroadcastsComplexTensors) {
  const Group group = OverAll();
  using Complex = std::complex<float>;
  std::vector<Tensor> inputs;
  std::vector<Complex> all;
  for (const Device& device : group.devices()) {
    all.push_back(Complex(static_cast<float>(inputs.size()), -1));
    inputs.push_back(FromVector<Complex>(device, {all.back()}));
  }
  for (const Tensor& y : group.AllGather(inputs)) EXPECT_EQ(*y.Read<Complex>(), all);
  for (const Tensor& y : group.Broadcast(inputs[1])) {
    EXPECT_THAT(*y.Read<Complex>(), ElementsAre(all[1]));
  }
}

TEST_F(GroupTest, OperationsRunInTheOrderOfTheCalls) {
  const Group group = OverAll();
  std::vector<Tensor> x = Ranks(group, 4);
  for (int i = 0; i < 20; ++i) {
    x = group.AllReduce(x, Reduction::kMean);
    for (Tensor& part : x) part = part + 1.0;
  }
  for (const Tensor& part : x) {
    EXPECT_THAT(*part.Read<float>(), ElementsAre(22.5, 32.5, 42.5, 52.5));
  }
}

// The order in which the members receive each other's messages isn't fixed.
TEST_F(GroupTest, ManyBarriersInARow) {
  const Group group = OverAll();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(group.Barrier().ok()) << "barrier " << i;
  std::vector<Tensor> last;
  for (int i = 0; i < 100; ++i) last = group.AllReduce(Ranks(group, 1), Reduction::kMax);
  for (const Tensor& y : last) EXPECT_THAT(*y.Read<float>(), ElementsAre(5));
}

TEST_F(GroupTest, RejectsInvalidInputsAtTheCall) {
  const Group group = OverAll();
  std::vector<Tensor> x = Ranks(group, 2);
  x[3] = FromVector<float>(group.devices()[3], {1, 2, 3});
  ExpectError(group.AllReduce(x)[0].status(), absl::StatusCode::kInvalidArgument,
              {"tensor 3", "float32[3]", "float32[2]"});
  x[3] = x[2];
  ExpectError(group.AllReduce(x)[5].status(), absl::StatusCode::kInvalidArgument,
              {group.devices()[3].name()});
  x.pop_back();
  ExpectError(group.AllReduce(x)[0].status(), absl::StatusCode::kInvalidArgument, {"6 members"});
  ExpectError(group.ReduceScatter(Ranks(group, 4))[0].status(), absl::StatusCode::kInvalidArgument,
              {"divisible"});
  ExpectError(group.Broadcast(Tensor())[0].status(), absl::StatusCode::kFailedPrecondition);
  std::vector<Tensor> flags;
  for (const Device& device : group.devices()) flags.push_back(Ones(device, {2}, {DType::kBool}));
  ExpectError(group.AllReduce(flags)[0].status(), absl::StatusCode::kInvalidArgument, {"cast"});
  std::vector<Tensor> complex;
  for (const Device& device : group.devices()) {
    complex.push_back(Ones(device, {2}, {DType::kComplex64}));
  }
  ExpectError(group.AllReduce(complex)[0].status(), absl::StatusCode::kInvalidArgument,
              {"complex64[2]"});
  // The rejected calls don't affect the group.
  for (const Tensor& y : group.AllReduce(Ranks(group, 1))) {
    EXPECT_THAT(*y.Read<float>(), ElementsAre(15));
  }
}

TEST_F(GroupTest, RejectsInvalidDevices) {
  ExpectError(Group::Create({}), absl::StatusCode::kInvalidArgument);
  ExpectError(Group::Create({On(0), On(1), On(0)}), absl::StatusCode::kInvalidArgument, {"twice"});
  ExpectError(Group::Create({On(0), Device()}), absl::StatusCode::kFailedPrecondition);
  ExpectError(Group().AllReduce({})[0].status(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(GroupTest, ReleasedGroupFinishesItsOperations) {
  std::vector<Tensor> y;
  {
    const Group group = OverAll();
    y = group.AllReduce(Ranks(group, 1));
  }
  for (const Tensor& part : y) EXPECT_THAT(*part.Read<float>(), ElementsAre(15));
  y.clear();
  EXPECT_TRUE(Eventually([&] { return UsedEverywhere() == 0; })) << UsedEverywhere();
}

// The third server is stopped, and later continues.
TEST_F(GroupTest, StoppedServerBlocksOnlyWorkThatNeedsIt) {
  const Group all = MakeGroup({On(0), On(1), On(2)});
  const Group others = MakeGroup({On(0), On(1)});
  const Tensor there = Normal(On(0), {4 << 20}, /*seed=*/1);
  ASSERT_TRUE(there.Wait().ok());
  daemons_[2]->Signal(SIGSTOP);
  const Tensor to_slow = there.To(On(2));
  const std::vector<Tensor> of_all = all.AllReduce(Ranks(all, 1));
  const Tensor to_other = there.To(On(1));
  EXPECT_TRUE(to_other.copy_report().ok());
  for (const Tensor& part : others.AllReduce(Ranks(others, 1))) {
    EXPECT_THAT(*part.Read<float>(), ElementsAre(1));
  }
  daemons_[2]->Signal(SIGCONT);
  EXPECT_TRUE(to_slow.copy_report().ok());
  EXPECT_EQ(*Sum(Eq(to_slow, Normal(On(2), {4 << 20}, /*seed=*/1))).Item<int64_t>(), 4 << 20);
  for (const Tensor& part : of_all) EXPECT_THAT(*part.Read<float>(), ElementsAre(3));
}

TEST_F(GroupTest, OperationsWaitForASlowMember) {
  const Group group = MakeGroup({On(0), On(1), On(2)});
  std::atomic<bool> done = false;
  // The third server runs a tenth of the time.
  std::thread slows_down([&] {
    while (!done) {
      daemons_[2]->Signal(SIGSTOP);
      std::this_thread::sleep_for(std::chrono::milliseconds(9));
      daemons_[2]->Signal(SIGCONT);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  std::vector<Tensor> x = Ranks(group, 1 << 20);
  for (int i = 0; i < 5; ++i) x = group.AllReduce(x, Reduction::kMax);
  for (const Tensor& part : x) {
    const auto values = part.Read<float>();
    EXPECT_TRUE(values.ok()) << values.status();
    if (values.ok()) {
      EXPECT_EQ(values->back(), 2 + 10.0f * ((1 << 20) - 1));
    }
  }
  done = true;
  slows_down.join();
}

TEST_F(GroupTest, ErrorOfOneInputFailsAllMembers) {
  const Group group = MakeGroup({On(0), On(1)}, absl::Seconds(10));
  // The tensor exceeds the device's limit. The server detects that when the op runs.
  const Tensor too_much = Sum(Zeros(*cluster_.device(1), {64 << 20}));
  const std::vector<Tensor> y = group.AllReduce({too_much.To(On(0)), Ones(On(1), {})});
  EXPECT_FALSE(y[0].Wait().ok());
  EXPECT_FALSE(y[1].Wait().ok());
}

TEST_F(GroupTest, LostMemberEndsTheGroupAndANewGroupWorks) {
  const Group group = MakeGroup({On(0), On(1), On(2)}, absl::Seconds(20));
  ASSERT_TRUE(group.Barrier().ok());
  // The third server never joins the operation.
  daemons_[2]->Signal(SIGSTOP);
  const std::vector<Tensor> y = group.AllReduce(Ranks(group, 4));
  daemons_[2]->Signal(SIGKILL);
  // The errors name the lost member as the client does. Dependent tensors carry the same error.
  const std::string lost = "rank 2 (" + On(2).name() + ")";
  EXPECT_THAT(std::string(y[0].Wait().message()), HasSubstr(lost));
  EXPECT_THAT(std::string(y[1].Wait().message()), HasSubstr(lost));
  EXPECT_THAT(std::string((y[0] + 1.0).Wait().message()), HasSubstr(lost));
  EXPECT_FALSE(group.AllReduce(Ranks(group, 1))[0].Wait().ok());
  const Group rest = MakeGroup({On(0), On(1)});
  for (const Tensor& part : rest.AllReduce(Ranks(rest, 1))) {
    EXPECT_THAT(*part.Read<float>(), ElementsAre(1));
  }
}

using ParallelTest = GroupTest;

TEST_F(ParallelTest, GatherRestoresASplitTensor) {
  const std::vector<Device> devices = cluster_.devices();
  const Tensor x = Normal(On(0), {3, 20}, /*seed=*/1);
  const std::vector<Tensor> parts = Shard(x, -1, devices);
  ASSERT_EQ(parts.size(), 6u);
  // 20 columns over 6 devices, split as torch.tensor_split does.
  const std::vector<int64_t> lengths = {4, 4, 3, 3, 3, 3};
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].shape().dim(1), lengths[i]);
    EXPECT_EQ(parts[i].device(), devices[i]);
  }
  EXPECT_EQ(*Gather(parts, 1, On(0)).Read<float>(), *x.Read<float>());
  ExpectError(Shard(x, 2, devices)[0].status(), absl::StatusCode::kInvalidArgument, {"axis 2"});
}

TEST_F(ParallelTest, ReplicasAreTheSame) {
  const Tensor x = Normal(On(1), {1 << 16}, /*seed=*/1);
  const std::vector<Tensor> copies = Replicate(x, cluster_.devices());
  EXPECT_TRUE(copies[2].IsSameAs(x));
  for (const Tensor& copy : copies) EXPECT_EQ(*copy.Read<float>(), *x.Read<float>());
}

TEST_F(ParallelTest, ParallelLinearMatchesOneDevice) {
  const std::vector<Device> devices = {On(0), On(1), On(2)};
  const Tensor w1 = Normal(On(0), {50, 20}, 1), b1 = Normal(On(0), {50}, 2);
  const Tensor w2 = Normal(On(0), {10, 50}, 3), b2 = Normal(On(0), {10}, 4);
  const Tensor x = Normal(On(0), {7, 20}, 5);
  const nn::ColumnParallelLinear up(w1, b1, devices, Activation::kRelu);
  const nn::RowParallelLinear down(w2, b2, MakeGroup(devices));
  const std::vector<Tensor> y = down.Forward(up.Forward(Replicate(x, devices)));
  const Tensor wanted = Linear(Linear(x, w1, b1, {.activation = Activation::kRelu}), w2, b2);
  for (const Tensor& part : y) {
    EXPECT_LT(*Max(Abs(part.To(On(0)) - wanted)).Item<double>(), 1e-3);
  }
}

TEST_F(ParallelTest, PipelineMatchesItsStages) {
  std::vector<std::shared_ptr<nn::Module>> stages;
  for (int i = 0; i < 3; ++i) {
    stages.push_back(std::make_shared<nn::Sequential>(nn::Linear(16, 16, {.seed = i}), nn::Tanh()));
  }
  const auto pipeline = nn::Pipeline::Create(stages, {On(0), On(1), On(2)});
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  const Tensor x = Normal(On(0), {10, 16}, 1);
  const Tensor y = pipeline->Forward(x, 4);
  EXPECT_EQ(y.device(), On(2));
  Tensor wanted = x;
  for (const auto& stage : stages) {
    ASSERT_TRUE(stage->To(On(0)).ok());
    wanted = stage->Forward(wanted);
  }
  EXPECT_LT(*Max(Abs(y.To(On(0)) - wanted)).Item<double>(), 1e-6);
  ExpectError(pipeline->Forward(x, 0).status(), absl::StatusCode::kInvalidArgument);
  ExpectError(nn::Pipeline::Create(stages, {On(0)}), absl::StatusCode::kInvalidArgument);
}

TEST_F(ParallelTest, TheExamplesRun) {
  const std::string servers = addresses_[0] + "," + addresses_[1] + "," + addresses_[2];
  for (const std::string& example :
       {std::string("data_parallel"), std::string("tensor_parallel"), std::string("pipeline")}) {
    const std::string command =
        TENSORD_EXAMPLES_PATH "/example_" + example + " " + servers + " " TENSORD_TEST_DATA;
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    const std::string help =
        TENSORD_EXAMPLES_PATH "/example_" + example + " --help | grep -q 'usage: .*SERVERS'";
    EXPECT_EQ(std::system(help.c_str()), 0) << help;
  }
}

}  // namespace
}  // namespace tensord::integration
