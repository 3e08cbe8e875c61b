// A program on a GPU stops between the launches of its kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "cuda_fixture.h"
#include "tensord/server/device/spare_memory.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/session/session_table.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/expect_error.h"
#include "tensord/tests/mib.h"
#include "tensord/tests/unit/cuda/checked_cuda_device.h"
#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::server {
namespace {

constexpr uint32_t kSteps = 200;

// Spare memory that fills the device, so that an allocation of the program fails at first. The
// server then calls FreeUnused() on the executor's thread, between two kernels. FreeUnused() closes
// the session.
class SpareThatClosesSession final : public SpareMemory {
 public:
  SpareThatClosesSession(Device* device, SessionRef session, int64_t bytes)
      : device_(device), session_(std::move(session)), memory_(*device->Allocate(bytes)) {
    device_->spares().Add(this);
  }
  ~SpareThatClosesSession() override { device_->spares().Remove(this); }

  bool FreeUnused(const MemoryAccount* /*account*/) override {
    if (memory_ == nullptr) return false;
    session_->Close();
    memory_ = nullptr;
    return true;
  }
  bool freed() const { return memory_ == nullptr; }

 private:
  Device* const device_;
  const SessionRef session_;
  BufferRef memory_;
};

class CudaStopTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(*MakeCheckedCudaDevice({DeviceKind::kCuda, 0}, 0, 8 * kMiB));
    engine_ = std::make_unique<Engine>(std::move(devices), /*fusion=*/false, /*graphs=*/false);
    sessions_ = std::make_unique<SessionTable>(Limits(), engine_->slots());
    session_ = *sessions_->Open(TestPrincipal(), kTestLeaseSeconds, "test");
    const TensorSpec spec{DType::kFloat32, {kMiB / 4}};
    ProgramSpec program{{spec}, {}, {kSteps}};
    for (uint32_t i = 0; i < kSteps; ++i) program.steps.push_back({"neg", &none_, {i}});
    program_ = *engine_->Prepare(*session_, program, "cuda:0");
    const Attributes attrs = {{"shape", std::vector<int64_t>{kMiB / 4}}};
    ASSERT_TRUE(engine_->Run(session_, {"ones", {}, 1, attrs, "cuda:0"}).ok());
    engine_->slots()[0]->executor->Drain();
  }

  void TearDown() override {
    program_.reset();
    session_.reset();
    sessions_.reset();
    engine_.reset();
  }

  // Runs the program. Returns the status of its output, and counts the calls of the CUDA runtime.
  absl::Status Run(Handle output, int64_t* calls) {
    const int64_t before = cuda_emulation::RuntimeCalls();
    const Handle input = 1;
    Executor& executor = *engine_->slots()[0]->executor;
    // The program begins only after the call that started it has returned.
    const auto returned = std::make_shared<absl::Notification>();
    executor.Post(executor.NewLane(), [returned] { returned->WaitForNotification(); });
    const auto outputs =
        engine_->Run(session_, program_, absl::MakeSpan(&input, 1), absl::MakeSpan(&output, 1));
    returned->Notify();
    if (!outputs.ok()) return outputs.status();
    executor.Drain();
    *calls = cuda_emulation::RuntimeCalls() - before;
    return (*outputs)[0]->status();
  }

  const Attributes none_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<SessionTable> sessions_;
  SessionRef session_;
  std::shared_ptr<Program> program_;
};

TEST_F(CudaStopTest, ProgramOfAClosedSessionStopsBetweenItsLaunches) {
  int64_t all_calls = 0, calls = 0;
  const absl::Status complete = Run(2, &all_calls);
  ASSERT_TRUE(complete.ok()) << complete;
  ASSERT_GE(all_calls, kSteps);
  session_->Drop({2});
  Device& device = *engine_->slots()[0]->device;
  // The first result fits beside the input and the spare memory; the second result doesn't.
  const SpareThatClosesSession spare(&device, session_, 5 * kMiB + kMiB / 2);
  ExpectError(Run(3, &calls), absl::StatusCode::kFailedPrecondition,
              {"program (tensor 3)", "the session has ended"});
  EXPECT_TRUE(spare.freed());
  EXPECT_LT(calls, all_calls / 4);
  EXPECT_EQ(device.memory().used_bytes, 0);
}

}  // namespace
}  // namespace tensord::server
