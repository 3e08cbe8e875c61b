// Groups of GPUs, used through the client. The daemons have emulated GPUs and the emulated NCCL.
#include <gmock/gmock.h>
#include <signal.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/tensord.h"
#include "tensord/tests/integration/cluster_fixture.h"
#include "tensord/tests/integration/daemon_fixture.h"

namespace tensord::integration {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr DType kDTypes[] = {DType::kFloat16, DType::kBFloat16, DType::kFloat32,
                             DType::kFloat64, DType::kInt32,    DType::kInt64};

// Daemons with two GPUs and two CPU devices each, and a client's cluster of them.
class GpuGroupTest : public testing::Test {
 protected:
  // Starts one daemon for each string, and connects a cluster. A string that isn't empty is a
  // NAME=VALUE that is added to the daemon's environment.
  void Start(const std::vector<std::string>& environments) {
    std::vector<std::string> addresses;
    for (const std::string& added : environments) {
      std::vector<std::string> environment = {"TENSORD_EMULATED_DEVICES=2"};
      if (!added.empty()) environment.push_back(added);
      auto daemon = DaemonProcess::Start({"--devices=cuda:0=64MiB,cuda:1=64MiB,cpu=64MiB,cpu=64MiB",
                                          "--cpu-threads=2", "--peers=127.0.0.1:*"},
                                         environment);
      ASSERT_TRUE(daemon.ok()) << daemon.status();
      addresses.push_back((*daemon)->address());
      daemons_.push_back(*std::move(daemon));
    }
    ClusterOptions options;
    options.connect.reconnect_timeout = absl::Milliseconds(500);
    options.connect.shared_memory = false;
    auto cluster = Cluster::Connect(addresses, options);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
  }
  void StartServers(int count) { Start(std::vector<std::string>(count)); }

  // Terminates the daemons that still run. Expects that they exit with 0 and have reported no
  // misuse of CUDA or NCCL.
  void TearDown() override {
    cluster_.Close();
    for (const auto& daemon : daemons_) {
      if (!daemon->running()) continue;
      daemon->ExpectTerminatesCleanly();
      EXPECT_THAT(daemon->Output(), testing::Not(HasSubstr("cuda emulation:")));
    }
  }

  // Returns the devices of one kind: two of the first server, two of the second, and so on.
  std::vector<Device> All(DeviceKind kind) const {
    std::vector<Device> devices;
    for (const Device& device : cluster_.devices()) {
      if (device.kind() == kind) devices.push_back(device);
    }
    return devices;
  }
  // Returns GPU `index` of a server.
  Device Gpu(int server, int index = 0) const { return All(DeviceKind::kCuda)[2 * server + index]; }

  static Group MakeGroup(std::vector<Device> devices, absl::Duration timeout = absl::Seconds(60)) {
    auto group = Group::Create(std::move(devices), {.timeout = timeout});
    EXPECT_TRUE(group.ok()) << group.status();
    return group.ok() ? *group : Group();
  }

  // Returns one tensor of `count` elements for each rank: rank, rank + 10, rank + 20, …
  static std::vector<Tensor> Ranks(const Group& group, int64_t count) {
    std::vector<Tensor> tensors;
    for (int rank = 0; rank < group.size(); ++rank) {
      std::vector<float> values;
      for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(rank + 10 * i));
      tensors.push_back(FromVector(group.devices()[rank], values));
    }
    return tensors;
  }

  // Returns one tensor of shape (2·size, 3) for each rank. Its elements are small integers.
  static std::vector<Tensor> Inputs(const Group& group, DType dtype) {
    std::vector<Tensor> tensors;
    for (int rank = 0; rank < group.size(); ++rank) {
      std::vector<float> values;
      for (int i = 0; i < 6 * group.size(); ++i) {
        values.push_back(static_cast<float>((rank * 7 + i * 3) % 11 - 5));
      }
      tensors.push_back(
          FromVector(group.devices()[rank], Shape({2 * group.size(), 3}), values).To(dtype));
    }
    return tensors;
  }

  // Runs all operations with all reductions. Returns the bytes of all outputs.
  static std::vector<std::vector<uint8_t>> RunEverything(const Group& group, DType dtype) {
    const std::vector<Tensor> inputs = Inputs(group, dtype);
    std::vector<Tensor> outputs;
    const auto add = [&](const std::vector<Tensor>& more) {
      outputs.insert(outputs.end(), more.begin(), more.end());
    };
    std::vector<Reduction> reductions = {Reduction::kSum, Reduction::kMax};
    if (IsFloating(dtype)) reductions.push_back(Reduction::kMean);
    for (const Reduction reduction : reductions) {
      add(group.AllReduce(inputs, reduction));
      add(group.ReduceScatter(inputs, reduction));
    }
    add(group.AllGather(inputs));
    for (const Tensor& input : inputs) add(group.Broadcast(input));
    EXPECT_TRUE(group.Barrier().ok());
    std::vector<std::vector<uint8_t>> results;
    for (const Tensor& output : outputs) {
      const auto bytes = output.ReadBytes();
      EXPECT_TRUE(bytes.ok()) << output.Describe() << ": " << bytes.status();
      results.push_back(bytes.ok() ? *bytes : std::vector<uint8_t>());
    }
    return results;
  }

  // Expects that a group of GPUs has the same results as a group of as many CPU devices.
  void ExpectSameAsCpus(const std::vector<Device>& gpus, const std::vector<Device>& cpus) {
    const Group on_gpus = MakeGroup(gpus), on_cpus = MakeGroup(cpus);
    for (const DType dtype : kDTypes) {
      const auto results = RunEverything(on_gpus, dtype);
      EXPECT_EQ(results, RunEverything(on_cpus, dtype)) << DTypeName(dtype);
      EXPECT_FALSE(results[0].empty());
    }
    for (const Tensor& y : on_gpus.AllReduce(Ranks(on_gpus, 2))) {
      const float sum = static_cast<float>(gpus.size() * (gpus.size() - 1) / 2);
      EXPECT_THAT(*y.Read<float>(), ElementsAre(sum, sum + 10 * static_cast<float>(gpus.size())));
    }
  }

  int64_t UsedEverywhere() const { return UsedBytesOf(cluster_); }

  std::vector<std::unique_ptr<DaemonProcess>> daemons_;
  Cluster cluster_;
};

TEST_F(GpuGroupTest, ResultsOfTwoGpusOfOneServerMatchCpus) {
  StartServers(1);
  ExpectSameAsCpus(All(DeviceKind::kCuda), All(DeviceKind::kCpu));
}

TEST_F(GpuGroupTest, ResultsOfGpusOfTwoServersMatchCpus) {
  StartServers(2);
  const std::vector<Device> gpus = All(DeviceKind::kCuda), cpus = All(DeviceKind::kCpu);
  ExpectSameAsCpus({gpus[0], gpus[2]}, {cpus[0], cpus[2]});
  ExpectSameAsCpus(gpus, cpus);
  // Rank 0 is on the second server.
  ExpectSameAsCpus({gpus[3], gpus[0], gpus[1]}, {cpus[3], cpus[0], cpus[1]});
}

TEST_F(GpuGroupTest, OperationsRunInTheOrderOfTheCalls) {
  StartServers(2);
  const Group group = MakeGroup(All(DeviceKind::kCuda));
  std::vector<Tensor> x = Ranks(group, 4);
  for (int i = 0; i < 20; ++i) {
    x = group.AllReduce(x, Reduction::kMean);
    for (Tensor& part : x) part = part + 1.0;
  }
  for (const Tensor& part : x) {
    EXPECT_THAT(*part.Read<float>(), ElementsAre(21.5, 31.5, 41.5, 51.5));
  }
}

TEST_F(GpuGroupTest, AllReducesLargeTensors) {
  StartServers(2);
  const Group group = MakeGroup({Gpu(0), Gpu(1)});
  const std::vector<Tensor> x = {Normal(Gpu(0), {1 << 20}, 1), Normal(Gpu(1), {1 << 20}, 2)};
  const Tensor wanted = x[0] + x[1].To(Gpu(0));
  for (const Tensor& y : group.AllReduce(x)) {
    EXPECT_EQ(*Sum(Eq(y.To(Gpu(0)), wanted)).Item<int64_t>(), 1 << 20);
  }
}

TEST_F(GpuGroupTest, TwoGroupsOfTheSameGpusRunAtTheSameTime) {
  StartServers(2);
  const Group first = MakeGroup(All(DeviceKind::kCuda)), second = MakeGroup({Gpu(1), Gpu(0)});
  std::vector<Tensor> outputs;
  for (int i = 0; i < 20; ++i) {
    for (const Tensor& y : first.AllReduce(Ranks(first, 1))) outputs.push_back(y);
    for (const Tensor& y : second.AllReduce(Ranks(second, 1))) outputs.push_back(y * 6.0);
  }
  for (const Tensor& y : outputs) EXPECT_THAT(*y.Read<float>(), ElementsAre(6));
}

TEST_F(GpuGroupTest, ReleasedGroupFinishesItsOperationsAndFreesItsMemory) {
  StartServers(2);
  std::vector<Tensor> y;
  {
    const Group group = MakeGroup(All(DeviceKind::kCuda));
    y = group.AllReduce(Ranks(group, 1));
  }
  for (const Tensor& part : y) EXPECT_THAT(*part.Read<float>(), ElementsAre(6));
  y.clear();
  EXPECT_TRUE(Eventually([&] { return UsedEverywhere() == 0; })) << UsedEverywhere();
}

TEST_F(GpuGroupTest, KilledServerAbortsTheOthersWhichCanJoinANewGroup) {
  StartServers(3);
  const Group group = MakeGroup({Gpu(0), Gpu(1), Gpu(2)});
  ASSERT_TRUE(group.Barrier().ok());
  daemons_[2]->Signal(SIGSTOP);  // its member doesn't join the operation
  const std::vector<Tensor> y = group.AllReduce(Ranks(group, 4));
  daemons_[2]->Signal(SIGKILL);
  for (const int rank : {0, 1}) {
    ExpectError(y[rank].Wait(), absl::StatusCode::kAborted,
                {absl::StrCat("rank 2 (", Gpu(2).name(), ")")});
  }
  EXPECT_FALSE(group.AllReduce(Ranks(group, 1))[0].Wait().ok());
  const Group rest = MakeGroup({Gpu(0), Gpu(1)});
  for (const Tensor& part : rest.AllReduce(Ranks(rest, 1))) {
    EXPECT_THAT(*part.Read<float>(), ElementsAre(1));
  }
}

// The third server's GPU is slow, so the other members are most likely waiting in NCCL when the
// server is killed.
TEST_F(GpuGroupTest, ServerKilledDuringOperationsAbortsTheOthers) {
  Start({"", "", "TENSORD_EMULATED_MAX_DELAY_US=100000"});
  const Group group = MakeGroup({Gpu(0), Gpu(1), Gpu(2)});
  std::vector<std::vector<Tensor>> outputs;
  for (int i = 0; i < 200; ++i) outputs.push_back(group.AllReduce(Ranks(group, 4)));
  EXPECT_TRUE(outputs[0][0].Wait().ok());
  daemons_[2]->Signal(SIGKILL);
  for (const int rank : {0, 1}) {
    ExpectError(outputs.back()[rank].Wait(), absl::StatusCode::kAborted,
                {absl::StrCat("rank 2 (", Gpu(2).name(), ")")});
  }
  const Group rest = MakeGroup({Gpu(0), Gpu(1)});
  for (const Tensor& part : rest.AllReduce(Ranks(rest, 1))) {
    EXPECT_THAT(*part.Read<float>(), ElementsAre(1));
  }
}

TEST_F(GpuGroupTest, MissingMemberCausesDeadlineExceeded) {
  StartServers(2);
  const Group group = MakeGroup({Gpu(0), Gpu(1)}, absl::Seconds(4));
  ASSERT_TRUE(group.Barrier().ok());
  daemons_[1]->Signal(SIGSTOP);
  const std::vector<Tensor> y = group.AllReduce(Ranks(group, 4));
  ExpectError(y[0].Wait(), absl::StatusCode::kDeadlineExceeded);
  daemons_[1]->Signal(SIGCONT);
  EXPECT_FALSE(y[1].Wait().ok());
}

// The second server agrees to the operation at once, but its GPU starts it only after the group's
// timeout.
TEST_F(GpuGroupTest, MemberThatIsLateInNcclCausesDeadlineExceeded) {
  Start({"", "TENSORD_EMULATED_MAX_DELAY_US=600000"});
  const Group group = MakeGroup({Gpu(0), Gpu(1)}, absl::Milliseconds(400));
  const std::vector<Tensor> x = Ranks(group, 4);
  for (const Tensor& input : x) ASSERT_TRUE(input.Wait().ok());
  ExpectError(group.AllReduce(x)[0].Wait(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(GpuGroupTest, RejectsDevicesOfDifferentKinds) {
  StartServers(1);
  ExpectError(Group::Create({Gpu(0), All(DeviceKind::kCpu)[0]}), absl::StatusCode::kInvalidArgument,
              {"different kinds"});
}

}  // namespace
}  // namespace tensord::integration
