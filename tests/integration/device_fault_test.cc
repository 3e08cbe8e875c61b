// What clients of the real daemon see when a device is lost and restarts.
#include <filesystem>
#include <future>

#include "absl/strings/str_cat.h"
#include "tensord/client/tensord.h"
#include "tensord/tests/integration/daemon_fixture.h"
#include "tensord/tests/integration/fault_socket.h"
#include "tensord/tests/integration/health_watch.h"
#include "tensord/tests/sanitized.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;
using Health = health_v1::HealthCheckResponse;
using testing::Each;
using testing::HasSubstr;

// A daemon with two clients. Tests inject faults into cpu:0, but not into cpu:1.
class DeviceFaultTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = (std::filesystem::temp_directory_path() / "tensord_fault.XXXXXX").string();
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    const std::string path = folder_ + "/faults";
    auto daemon =
        DaemonProcess::Start({"--devices=faulty:cpu=256MiB,cpu=256MiB", "--fault-socket=" + path,
                              absl::StrCat("--exit-when-lost=", exit_when_lost_)});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    faults_ = std::make_unique<FaultSocket>(path);
    for (int i : {0, 1}) {
      auto client = Client::Connect(daemon_->address());
      ASSERT_TRUE(client.ok()) << client.status();
      client_[i] = *std::move(client);
      faulty_[i] = *client_[i].device("cpu:0");
      good_[i] = *client_[i].device("cpu:1");
    }
    watch_ = std::make_unique<Watch>(daemon_->address(), "cpu:0");
    ASSERT_EQ(watch_->Next(), Health::SERVING);
  }

  // Expects that the daemon still runs and exits with 0.
  void TearDown() override {
    watch_.reset();
    if (daemon_ != nullptr) {
      for (int i : {0, 1}) {
        faulty_[i] = good_[i] = Device();
        client_[i] = Client();
      }
      daemon_->ExpectTerminatesCleanly();
    }
    faults_.reset();
    std::filesystem::remove_all(folder_);
  }

  void Order(const std::string& order) { ASSERT_EQ(faults_->Send("cpu:0 " + order), "ok\n"); }

  // Wait until the health service reports that cpu:0 is lost, or that it serves again.
  void ExpectLost() { ASSERT_EQ(watch_->Next(), Health::NOT_SERVING) << daemon_->Output(); }
  void ExpectBack() { ASSERT_EQ(watch_->Next(), Health::SERVING) << daemon_->Output(); }

  // Waits until cpu:0 has restarted `restarts` times and serves again. The health service doesn't
  // always report a loss: if the device restarts before the service has sent the loss, the status
  // is the same as the last one that was sent.
  void ExpectRestarts(int64_t restarts) {
    EXPECT_TRUE(Eventually([&] {
      const auto devices = client_[0].ListDevices();
      return devices.ok() && (*devices)[0].restarts == restarts &&
             (*devices)[0].state == DeviceState::kServing;
    })) << daemon_->Output();
  }

  int64_t Used(const Device& device) {
    const auto memory = client_[0].memory(device);
    return memory.ok() ? memory->used_bytes : -1;
  }
  Tensor Ones(const Device& device, int64_t n = 1000) { return Full(device, {n}, 1.0); }
  static absl::Status Outcome(const Tensor& tensor) { return tensor.Read<float>().status(); }

  // Expects that the restarted device works for both clients, and that it holds no memory.
  void ExpectAllAsNew() {
    for (int i : {0, 1}) {
      const Tensor fresh = Ones(faulty_[i]) + Ones(faulty_[i]);
      const auto values = fresh.Read<float>();
      ASSERT_TRUE(values.ok()) << values.status();
      EXPECT_THAT(*values, Each(2));
    }
    EXPECT_TRUE(Eventually([&] { return Used(faulty_[0]) == 0; })) << Used(faulty_[0]);
  }

  std::string exit_when_lost_ = "never";
  std::string folder_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<FaultSocket> faults_;
  Client client_[2];
  Device faulty_[2];
  Device good_[2];
  std::unique_ptr<Watch> watch_;
};

class DeviceFaultAtTest : public DeviceFaultTest,
                          public testing::WithParamInterface<const char*> {};

TEST_P(DeviceFaultAtTest, LosesTensorsAndRestarts) {
  const Tensor kept = Ones(good_[0]);
  Tensor lost[2] = {Ones(faulty_[0]), Ones(faulty_[1])};
  for (const Tensor& tensor : lost) ASSERT_TRUE(Outcome(tensor).ok());
  Order(GetParam());
  // One of these ops hits the fault.
  Tensor failed = Neg(lost[0]) + kept.To(faulty_[0]);
  client_[0].Synchronize().IgnoreError();
  ExpectLost();
  ExpectBack();
  for (Tensor& tensor : lost) ExpectError(Outcome(tensor), Code::kDataLoss, {"cpu:0"});
  EXPECT_FALSE(Outcome(failed).ok());
  ExpectError(Outcome(Neg(lost[0])), Code::kDataLoss, {"cpu:0"});
  ExpectError(Outcome(lost[1].To(good_[1])), Code::kDataLoss, {"cpu:0"});
  EXPECT_THAT(*(kept + kept).Read<float>(), Each(2));
  const auto devices = client_[0].ListDevices();
  ASSERT_TRUE(devices.ok());
  EXPECT_EQ((*devices)[0].state, DeviceState::kServing);
  EXPECT_EQ((*devices)[0].restarts, 1);
  EXPECT_EQ((*devices)[1].restarts, 0);
  ExpectAllAsNew();
}

INSTANTIATE_TEST_SUITE_P(Faults, DeviceFaultAtTest,
                         testing::Values("kernel 1", "copy 1", "fence 1", "die"));

// A small op would run inline, and the engine would try again after the failure.
TEST_F(DeviceFaultTest, FailedAllocationLosesNothing) {
  const Tensor before = tensord::Ones(faulty_[0], {1 << 20});
  ASSERT_TRUE(Outcome(before).ok());
  Order("alloc 1");
  ExpectError(Outcome(Neg(before)), Code::kResourceExhausted, {"cpu:0"});
  EXPECT_THAT(*before.Read<float>(), Each(1));
  EXPECT_EQ((*client_[0].ListDevices())[0].restarts, 0);
}

TEST_F(DeviceFaultTest, RefusesWorkWhileLost) {
  const Tensor kept = Ones(good_[0]);
  auto whole = std::make_unique<Watch>(daemon_->address(), "");
  ASSERT_EQ(whole->Next(), Health::SERVING);
  Order("no-return 1000000");
  Order("die");
  ExpectLost();
  ExpectError(Outcome(Ones(faulty_[0])), Code::kUnavailable, {"cpu:0"});
  ExpectError(Outcome(kept.To(faulty_[0])), Code::kUnavailable, {"cpu:0"});
  ExpectError(Outcome(FromVector(faulty_[1], std::vector<float>(1 << 20))), Code::kUnavailable,
              {"cpu:0"});
  const auto devices = client_[1].ListDevices();
  ASSERT_TRUE(devices.ok());
  EXPECT_NE((*devices)[0].state, DeviceState::kServing);
  EXPECT_THAT((*devices)[0].state_reason, HasSubstr("died"));
  EXPECT_EQ((*devices)[1].state, DeviceState::kServing);
  // The server as a whole is SERVING while a device is.
  RpcClient rpc(daemon_->address());
  EXPECT_EQ(*rpc.Health(""), "SERVING");
  EXPECT_EQ(*rpc.Health("cpu:0"), "NOT_SERVING");
  EXPECT_EQ(*rpc.Health("cpu:1"), "SERVING");
  EXPECT_THAT(*(kept + kept).Read<float>(), Each(2));
  Order("clear");
  ExpectBack();
  ExpectAllAsNew();
}

TEST_F(DeviceFaultTest, QueuedOpsFailWithoutHanging) {
  std::vector<Tensor> queued[2];
  Tensor weight[2];
  for (int i : {0, 1}) {
    weight[i] = Full(faulty_[i], {300, 300}, 0.5);
    ASSERT_TRUE(Outcome(weight[i]).ok());
  }
  Order("delay-kernel 50");
  Order("kernel 5");
  for (int k = 0; k < 50; ++k) {
    for (int i : {0, 1}) queued[i].push_back(Matmul(weight[i], weight[i]));
  }
  // Meanwhile, the other device works.
  EXPECT_THAT(*(Ones(good_[0]) + Ones(good_[0])).Read<float>(), Each(2));
  ExpectLost();
  for (int i : {0, 1}) {
    for (const Tensor& tensor : queued[i]) ExpectError(Outcome(tensor), Code::kDataLoss, {"cpu:0"});
  }
  ExpectBack();
  Order("clear");
  for (int i : {0, 1}) {
    queued[i].clear();
    weight[i] = Tensor();
  }
  ExpectAllAsNew();
}

// The client pauses in the middle of an upload while the device is lost.
TEST_F(DeviceFaultTest, LossEndsAnActiveUpload) {
  RpcClient rpc(daemon_->address());
  RpcSession session(rpc);
  const TensorSpec spec{DType::kFloat32, {1 << 20}};
  auto write = rpc.Write();
  v1::WriteRequest request = session.FirstWrite(1, spec);
  request.set_data(std::string(1 << 20, 'x'));
  ASSERT_TRUE(write->Send(request));
  ASSERT_TRUE(Eventually([&] { return Used(faulty_[0]) == spec.size_bytes(); }));
  Order("die");
  ExpectLost();
  ExpectBack();
  v1::WriteRequest more;
  more.set_offset(1 << 20);
  more.set_data(std::string(1 << 20, 'y'));
  write->Send(more);
  ExpectError(write->Finish(), Code::kDataLoss, {"cpu:0"});
  ExpectError(session.Get(1), Code::kNotFound);
  ExpectAllAsNew();
}

TEST_F(DeviceFaultTest, LossEndsAnActiveRead) {
  RpcClient rpc(daemon_->address());
  RpcSession session(rpc);
  ASSERT_TRUE(session.Ones(1, {32 << 20}).ok());
  auto read = rpc.Read(session.ReadRequest(1));
  ASSERT_TRUE(read->Next().has_value());
  Order("die");
  ExpectLost();
  while (read->Next().has_value()) {
  }
  ExpectError(read->Finish(), Code::kDataLoss, {"cpu:0"});
  ExpectBack();
  ASSERT_TRUE(session.Delete({1}).ok());
  ExpectAllAsNew();
}

TEST_F(DeviceFaultTest, ProgramRunsAgainAfterALoss) {
  const TensorSpec spec{DType::kFloat32, {64}};
  const auto program = Program::Record(faulty_[0], {spec}, [&](absl::Span<const Tensor> in) {
    return std::vector<Tensor>{Softmax(Neg(in[0]) + in[0]) * in[0]};
  });
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(Outcome(program->Run({Ones(faulty_[0], 64)})[0]).ok());
  Order("kernel 3");
  ExpectError(Outcome(program->Run({Ones(faulty_[0], 64)})[0]), Code::kDataLoss, {"cpu:0"});
  ExpectLost();
  ExpectBack();
  const auto values = program->Run({Ones(faulty_[0], 64)})[0].Read<float>();
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(*values, Each(1.0f / 64));
}

// A slow fence delays only the calls that wait for it.
TEST_F(DeviceFaultTest, SlowFenceIsNoLoss) {
  Order("delay-fence 300");
  auto late = std::async(std::launch::async, [&] {
    const Tensor tensor = Ones(faulty_[0]);
    return client_[0].Synchronize();
  });
  EXPECT_THAT(*(Ones(good_[1]) + Ones(good_[1])).Read<float>(), Each(2));
  EXPECT_TRUE(late.get().ok());
  EXPECT_EQ((*client_[0].ListDevices())[0].restarts, 0);
}

TEST_F(DeviceFaultTest, HundredLossesLeakNothing) {
  int64_t resident_bytes = 0;
  for (int round = 0; round < 100; ++round) {
    {
      const std::vector<float> values(1 << 20, 2);
      const Tensor uploaded[2] = {FromVector(faulty_[0], values), FromVector(faulty_[1], values)};
      const Tensor negative = Neg(uploaded[0]);
      const Tensor kept = Ones(good_[0]);
      ASSERT_TRUE(Outcome(uploaded[1]).ok());
      Order(round % 2 == 0 ? "kernel 1" : "die");
      const Tensor failed = Neg(negative);
      ExpectRestarts(round + 1);
      ExpectError(Outcome(negative), Code::kDataLoss, {"cpu:0"});
      ExpectEventuallyUsed([this] { return Used(faulty_[0]); }, 0);
      EXPECT_THAT(*kept.Read<float>(), Each(1));
    }
    if (round == 20) resident_bytes = daemon_->MemoryBytes("VmRSS");
  }
  EXPECT_EQ((*client_[0].ListDevices())[0].restarts, 100);
  ExpectAllAsNew();
  // AddressSanitizer keeps freed memory for a while.
  if (!kSanitized) EXPECT_LT(daemon_->MemoryBytes("VmRSS"), resident_bytes + (48 << 20));
}

class ExitWhenLostTest : public DeviceFaultTest {
 protected:
  ExitWhenLostTest() { exit_when_lost_ = "all"; }
};

TEST_F(ExitWhenLostTest, ExitsWithStatus75IfRestartsFail) {
  const Tensor kept = Ones(good_[0]);
  Order("no-return 1000000");
  Order("die");
  const absl::StatusOr<int> status = daemon_->WaitForEnd();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(*status, 75);
  EXPECT_THAT(daemon_->Output(), HasSubstr("cpu:0 could not be restarted"));
  EXPECT_THAT(daemon_->Output(), HasSubstr("draining"));
  daemon_.reset();
}

}  // namespace
}  // namespace tensord::integration
