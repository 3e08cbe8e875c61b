// The engine while a device is lost and after it has restarted.
#include <atomic>
#include <thread>

#include "tensord/server/device/device_factory.h"
#include "tensord/server/device/restartable_device.h"
#include "tensord/tests/unit/engine/engine_fixture.h"
#include "tensord/tests/unit/engine/read_tensor.h"

namespace tensord::server {
namespace {

using Code = absl::StatusCode;
using testing::Each;

// An engine with two sessions. Tests inject faults into cpu:0, but not into cpu:1.
class EngineFaultTest : public testing::Test {
 protected:
  void SetUp() override {
    auto devices = MakeDevices(*ParseDevices("faulty:cpu=64MiB,cpu=64MiB"), 2, &faults_);
    ASSERT_TRUE(devices.ok()) << devices.status();
    engine_ = std::make_unique<Engine>(*std::move(devices));
    sessions_ = std::make_unique<SessionTable>(Limits(), engine_->slots());
    for (SessionRef& session : session_)
      session = *sessions_->Open(TestPrincipal(), kTestLeaseSeconds, "test");
    engine_->SetDeviceListener([this](DeviceSlot& slot, DeviceEvent event) {
      if (event == DeviceEvent::kNotRestarted) {
        not_restarted_.fetch_add(1);
        return;
      }
      if (event == DeviceEvent::kLost) {
        for (const SessionRef& session : session_) {
          session->FailWaiting(slot, absl::DataLossError("cpu:0 was lost"));
        }
      }
      (event == DeviceEvent::kServing ? back_ : lost_).fetch_add(1);
    });
  }

  ~EngineFaultTest() override {
    if (engine_ != nullptr) engine_->SetDeviceListener(nullptr);
    for (SessionRef& session : session_) session.reset();
    sessions_.reset();
    engine_.reset();
  }

  void Order(const std::string& order) { ASSERT_TRUE(faults_.Apply("cpu:0 " + order).ok()); }

  absl::StatusOr<TensorRef> Run(absl::string_view op, std::vector<Handle> inputs, Handle output,
                                Attributes attrs = {}, absl::string_view device = "", int by = 0) {
    return engine_->Run(session_[by], {.op = op,
                                       .inputs = inputs,
                                       .output = output,
                                       .attrs = std::move(attrs),
                                       .device = device});
  }
  absl::StatusOr<TensorRef> Full(Handle output, int64_t n, double value,
                                 absl::string_view device = "cpu:0", int by = 0) {
    return Run("full", {}, output,
               {{"shape", std::vector<int64_t>{n}}, {"value", value}, {"dtype", DType::kFloat32}},
               device, by);
  }
  // Blocks until the tensor can be read. Returns its elements, or its error.
  absl::StatusOr<std::vector<float>> Read(Handle handle, int by = 0) {
    absl::StatusOr<TensorRef> tensor = session_[by]->Find(handle);
    if (!tensor.ok()) return tensor.status();
    return ReadTensor<float>(*engine_, *tensor);
  }

  int64_t Used(int device) { return engine_->slots()[device]->device->memory().used_bytes; }
  // The executor thread may release the operands of an op after a reader has its result.
  void ExpectFreed() {
    EXPECT_TRUE(Eventually([&] { return Used(0) == 0; })) << Used(0) << " bytes are in use";
  }
  bool WaitUntilBack(int times) {
    return Eventually([&] { return back_.load() >= times; });
  }

  FaultPlans faults_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<SessionTable> sessions_;
  SessionRef session_[2];
  std::atomic<int> lost_{0};
  std::atomic<int> back_{0};
  std::atomic<int> not_restarted_{0};
};

class EngineFaultAtTest : public EngineFaultTest,
                          public testing::WithParamInterface<const char*> {};

// Each kind of fault has the same effects.
TEST_P(EngineFaultAtTest, LosesOnlyTheFaultyDevice) {
  ASSERT_TRUE(Full(1, 100, 1).ok());
  ASSERT_TRUE(Full(1, 10, 7, "cpu:0", 1).ok());
  ASSERT_TRUE(Full(2, 100, 2, "cpu:1").ok());
  EXPECT_THAT(*Read(1), Each(1));
  Order("no-return 3");
  Order(GetParam());
  // A copy, a kernel or a fence hits the fault, or the monitor detects it.
  engine_->Copy(session_[0], 2, 3, "cpu:0", true).IgnoreError();
  Run("neg", {1}, 4).IgnoreError();
  EXPECT_TRUE(engine_->WhenIdle(session_[0], [] {}).ok());
  ASSERT_TRUE(Eventually([&] { return lost_.load() == 1; }));
  for (int by : {0, 1}) ExpectError(Read(1, by), Code::kDataLoss, {"cpu:0"});
  ExpectError(Run("neg", {1}, 5), Code::kDataLoss, {"cpu:0"});
  ExpectError(engine_->Copy(session_[0], 1, 6, "cpu:1", true), Code::kDataLoss, {"cpu:0"});
  // The other device works.
  EXPECT_THAT(*Read(2), Each(2));
  ASSERT_TRUE(Run("neg", {2}, 7).ok());
  EXPECT_THAT(*Read(7), Each(-2));
  // The lost device works after its restart.
  ASSERT_TRUE(WaitUntilBack(1));
  EXPECT_EQ(engine_->slots()[0]->device->health().restarts, 1);
  ExpectFreed();
  ExpectError(Read(1), Code::kDataLoss, {"cpu:0"});
  ExpectError(Run("neg", {1}, 8), Code::kDataLoss, {"cpu:0"});
  ASSERT_TRUE(Full(9, 10, 3).ok());
  ASSERT_TRUE(Run("neg", {9}, 10).ok());
  EXPECT_THAT(*Read(10), Each(-3));
  EXPECT_EQ(Used(0), 80);
  ASSERT_TRUE(session_[0]->Delete({{1, 9, 10}}).ok());
  ExpectFreed();
}

INSTANTIATE_TEST_SUITE_P(Faults, EngineFaultAtTest,
                         testing::Values("kernel 1", "copy 1", "fence 1", "die"));

TEST_F(EngineFaultTest, RefusesNewWorkUntilTheRestart) {
  ASSERT_TRUE(Full(1, 10, 1, "cpu:1").ok());
  Order("no-return 1000000");
  Order("die");
  ASSERT_TRUE(Eventually([&] { return lost_.load() == 1; }));
  const TensorSpec spec{DType::kFloat32, {4}};
  ExpectError(Full(2, 10, 1), Code::kUnavailable, {"cpu:0", "died"});
  ExpectError(engine_->Copy(session_[0], 1, 2, "cpu:0", true), Code::kUnavailable, {"cpu:0"});
  ExpectError(engine_->Promise(*session_[0], 2, spec, "cpu:0"), Code::kUnavailable, {"cpu:0"});
  ExpectError(engine_->BeginUpload(*session_[0], 2, spec, "cpu:0"), Code::kUnavailable, {"cpu:0"});
  ExpectError(engine_->Prepare(*session_[0], ProgramSpec{}, "cpu:0"), Code::kUnavailable,
              {"cpu:0"});
  ExpectError(session_[0]->Find(2), Code::kNotFound);
  EXPECT_TRUE(Eventually([&] { return not_restarted_.load() >= 1; }));
  Order("clear");
  ASSERT_TRUE(WaitUntilBack(1));
  EXPECT_TRUE(Full(2, 10, 1).ok());
  EXPECT_EQ(lost_.load(), 1);
}

TEST_F(EngineFaultTest, QueuedOpsFailForAllSessions) {
  const Attributes shape = {{"shape", std::vector<int64_t>{300, 300}}};
  for (int by : {0, 1}) {
    ASSERT_TRUE(Full(1, 90000, 1, "cpu:0", by).ok());
    ASSERT_TRUE(Run("reshape", {1}, 2, shape, "", by).ok());
  }
  ASSERT_TRUE(Read(2).ok());
  // Products don't run inline. The first one delays the others, and the fourth one fails.
  Order("delay-kernel 50");
  Order("kernel 4");
  for (Handle handle = 3; handle < 23; ++handle) {
    for (int by : {0, 1}) ASSERT_TRUE(Run("matmul", {2, 2}, handle, {}, "", by).ok());
  }
  ASSERT_TRUE(Eventually([&] { return lost_.load() == 1; }));
  for (Handle handle = 3; handle < 23; ++handle) {
    for (int by : {0, 1}) ExpectError(Read(handle, by), Code::kDataLoss, {"cpu:0"});
  }
  ASSERT_TRUE(WaitUntilBack(1));
  ExpectFreed();
}

TEST_F(EngineFaultTest, ActiveUploadAndItsDependentsFail) {
  const TensorSpec spec{DType::kFloat32, {4}};
  ASSERT_TRUE(engine_->Promise(*session_[0], 1, spec, "cpu:0").ok());
  ASSERT_TRUE(engine_->Promise(*session_[0], 2, spec, "cpu:0").ok());
  ASSERT_TRUE(Run("neg", {1}, 3).ok());
  ASSERT_TRUE(Run("neg", {2}, 4).ok());
  auto first = engine_->BeginUpload(*session_[0], 1, spec, "cpu:0");
  ASSERT_TRUE(first.ok());
  auto unpromised = engine_->BeginUpload(*session_[0], 5, spec, "cpu:0");
  ASSERT_TRUE(unpromised.ok());
  Order("die");
  // The test finishes no upload. The ops that wait for the uploads fail all the same.
  for (Handle handle : {3, 4}) ExpectError(Read(handle), Code::kDataLoss, {"cpu:0"});
  ASSERT_TRUE(WaitUntilBack(1));
  ExpectError(engine_->FinishUpload(*session_[0], *std::move(first), absl::OkStatus()),
              Code::kDataLoss, {"cpu:0"});
  ExpectError(engine_->FinishUpload(*session_[0], *std::move(unpromised), absl::OkStatus()),
              Code::kDataLoss, {"cpu:0"});
  ExpectError(engine_->BeginUpload(*session_[0], 2, spec, "cpu:0"), Code::kDataLoss, {"cpu:0"});
  ExpectError(session_[0]->Find(5), Code::kNotFound);
  ExpectFreed();
}

TEST_F(EngineFaultTest, FailedAllocationFailsOneOp) {
  ASSERT_TRUE(Full(1, 10, 1).ok());
  Order("alloc 1");
  ASSERT_TRUE(Full(2, 10, 2).ok());
  ExpectError(Read(2), Code::kResourceExhausted, {"cpu:0"});
  EXPECT_THAT(*Read(1), Each(1));
  EXPECT_EQ(lost_.load(), 0);
}

// The program computes a = x·x, b = a·x, c = b + a and c·c. It holds memory for its intermediate
// values.
TEST_F(EngineFaultTest, ProgramsRunAgainAfterTheRestart) {
  const Attributes none;
  ProgramSpec spec;
  spec.inputs = {{DType::kFloat32, {8, 8}}};
  spec.steps = {{"matmul", &none, {0, 0}},
                {"matmul", &none, {1, 0}},
                {"add", &none, {2, 1}},
                {"matmul", &none, {3, 3}}};
  spec.outputs = {4};
  const auto program = engine_->Prepare(*session_[0], spec, "cpu:0");
  ASSERT_TRUE(program.ok()) << program.status();
  const Attributes shape = {{"shape", std::vector<int64_t>{8, 8}}};
  const int64_t kept_bytes = Used(0);
  EXPECT_GT(kept_bytes, 0);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(Full(1, 64, 0.5).ok());
    ASSERT_TRUE(Run("reshape", {1}, 2, shape).ok());
    const Handle in = 2, out = 3;
    ASSERT_TRUE(engine_->Run(session_[0], *program, {&in, 1}, {&out, 1}).ok());
    // For x of 0.5: a is 2, b is 8, c is 10, and c·c is 8 * 100.
    EXPECT_THAT(*Read(3), Each(800));
    ASSERT_TRUE(session_[0]->Delete({{1, 2}}).ok());
    EXPECT_EQ(Used(0), kept_bytes + 256);
    Order("kernel 2");
    ASSERT_TRUE(Full(1, 64, 1).ok());
    ASSERT_TRUE(Run("reshape", {1}, 2, shape).ok());
    const Handle failing = 4;
    const auto run = engine_->Run(session_[0], *program, {&in, 1}, {&failing, 1});
    ExpectError(run.ok() ? Read(4).status() : run.status(), Code::kDataLoss, {"cpu:0"});
    ASSERT_TRUE(WaitUntilBack(round + 1));
    session_[0]->Drop({{1, 2, 3, 4}});
  }
}

TEST_F(EngineFaultTest, HundredLossesLeakNothing) {
  for (int round = 0; round < 100; ++round) {
    ASSERT_TRUE(Full(1, 1000, round).ok());
    ASSERT_TRUE(Full(2, 1000, round, "cpu:0", 1).ok());
    // On a busy machine, the ops are posted. The next kernel must be that of "neg".
    ASSERT_TRUE(Eventually(
        [&] { return (*session_[0]->Find(1))->done() && (*session_[1]->Find(2))->done(); }));
    Order(round % 2 == 0 ? "kernel 1" : "die");
    Run("neg", {1}, 3).IgnoreError();
    ASSERT_TRUE(WaitUntilBack(round + 1));
    ExpectError(Read(1), Code::kDataLoss);
    // The executor thread frees the op's inputs shortly after it has reported the error.
    EXPECT_TRUE(Eventually([&] { return Used(0) == 0; })) << Used(0);
    session_[0]->Drop({{1, 3}});
    session_[1]->Drop({{2}});
  }
  EXPECT_EQ(engine_->slots()[0]->device->health().restarts, 100);
  EXPECT_EQ(lost_.load(), 100);
}

// Injects faults while several threads work. Each read gives the right elements or an error.
TEST_F(EngineFaultTest, SurvivesFaultsUnderLoad) {
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int by : {0, 1}) {
    threads.emplace_back([&, by] {
      for (Handle handle = 1; !stop.load(); handle += 3) {
        const float value = static_cast<float>(handle % 1000);
        Full(handle, 50, value, "cpu:0", by).IgnoreError();
        Run("neg", {handle}, handle + 1, {}, "", by).IgnoreError();
        engine_->Copy(session_[by], handle + 1, handle + 2, "cpu:1", true).IgnoreError();
        const auto read = Read(handle + 2, by);
        if (read.ok() && *read != std::vector<float>(50, -value)) wrong.fetch_add(1);
        session_[by]->Drop({{handle, handle + 1, handle + 2}});
      }
    });
  }
  for (int round = 0; round < 20; ++round) {
    Order(round % 2 == 0 ? "kernel 5" : "die");
    EXPECT_TRUE(WaitUntilBack(round + 1));
  }
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_TRUE(Eventually([&] { return Used(0) == 0 && Used(1) == 0; }));
}

// Two logical devices on one GPU share its context. A fault loses both, and the context is reset
// only after both have been abandoned.
TEST(FaultDomainTest, DevicesOfOneGpuRestartTogether) {
  FaultPlan plans[2] = {FaultPlan({DeviceKind::kCpu, 0}), FaultPlan({DeviceKind::kCpu, 1})};
  std::atomic<int> living{0}, resets{0};
  std::atomic<bool> shared_while_living{false};
  class Counted final : public FakeDevice {
   public:
    Counted(int index, std::atomic<int>* living, FaultPlan* plan)
        : FakeDevice(index, {}), living_(living), plan_(plan) {
      living_->fetch_add(1);
    }
    absl::Status Check() override {
      MutexLock lock(&mu_);
      if (death_.ok()) death_ = plan_->ConsumeLoss();
      return death_;
    }
    void Abandon() override { living_->fetch_sub(1); }

   private:
    std::atomic<int>* const living_;
    FaultPlan* const plan_;
    Mutex mu_;
    absl::Status death_ ABSL_GUARDED_BY(mu_);
  };
  std::vector<std::unique_ptr<Device>> devices;
  for (int i = 0; i < 2; ++i) {
    devices.push_back(
        *RestartableDevice::Create({[&, i]() -> absl::StatusOr<std::unique_ptr<Device>> {
                                      return std::make_unique<Counted>(i, &living, &plans[i]);
                                    },
                                    "shared",
                                    [&] {
                                      if (living.load() != 0) shared_while_living = true;
                                      resets.fetch_add(1);
                                      return absl::OkStatus();
                                    }}));
  }
  Engine engine(std::move(devices));
  std::atomic<int> back{0};
  engine.SetDeviceListener([&](DeviceSlot&, DeviceEvent event) {
    back.fetch_add(event == DeviceEvent::kServing ? 1 : 0);
  });
  ASSERT_TRUE(plans[1].Apply("die").ok());
  EXPECT_TRUE(Eventually([&] { return back.load() == 2; }));
  EXPECT_EQ(resets.load(), 1);
  EXPECT_FALSE(shared_while_living.load());
  EXPECT_EQ(living.load(), 2);
  engine.SetDeviceListener(nullptr);
}

}  // namespace
}  // namespace tensord::server
