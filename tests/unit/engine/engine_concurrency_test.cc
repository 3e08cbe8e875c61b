// Many threads use one engine: the results are right, and no memory is left.
#include <atomic>
#include <thread>

#include "tensord/tests/unit/engine/engine_fixture.h"

namespace tensord::server {
namespace {

constexpr int kThreads = 4;
constexpr int kOpsEach = 200;

using EngineConcurrencyTest = EngineFixture;

void RunInThreads(const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(EngineConcurrencyTest, ThreadsShareASession) {
  RunInThreads([this](int thread) {
    const Handle base = 1000 * (thread + 1);
    const std::string device = thread % 2 == 0 ? "cpu:0" : "cpu:1";
    EXPECT_TRUE(Full(base, 4, 1, device).ok());
    for (int i = 1; i <= kOpsEach; ++i) {
      EXPECT_TRUE(Run("neg", {base + i - 1}, base + i).ok());
      session_->Drop({base + i - 1});
    }
    const auto values = Read(base + kOpsEach);
    EXPECT_TRUE(values.ok() && (*values)[0] == 1) << values.status();
  });
  Settle();
  EXPECT_EQ(UsedBytes(0), kThreads / 2 * 32);
  EXPECT_EQ(UsedBytes(1), kThreads / 2 * 32);
}

TEST_F(EngineConcurrencyTest, SessionsOpenAndCloseDuringWork) {
  RunInThreads([this](int thread) {
    for (int round = 0; round < 20; ++round) {
      const SessionRef session =
          *sessions_->Open(TestPrincipal(), kTestLeaseSeconds, "short-lived");
      for (Handle handle = 1; handle <= 10; ++handle) {
        (void)engine_->Run(session, {.op = "ones",
                                     .output = handle,
                                     .attrs = {{"shape", std::vector<int64_t>{8}}},
                                     .device = handle % 2 == 0 ? "cpu:0" : "cpu:1"});
        (void)engine_->Copy(session, handle, 100 + handle, "cpu:0", true);
      }
      EXPECT_TRUE(sessions_->Close(TestPrincipal(), session->id()).ok());
    }
  });
  EXPECT_TRUE(Eventually([this] { return UsedBytes(0) == 0 && UsedBytes(1) == 0; }))
      << UsedBytes(0) << " and " << UsedBytes(1) << " bytes are left";
}

TEST_F(EngineConcurrencyTest, OneOfManyThreadsGetsTheHandle) {
  std::atomic<int> won{0};
  RunInThreads([this, &won](int thread) {
    for (Handle handle = 1; handle <= 100; ++handle) won += Full(handle, 1, thread).ok();
  });
  EXPECT_EQ(won.load(), 100);
  Settle();
  EXPECT_EQ(UsedBytes(0), 800);
}

TEST_F(EngineConcurrencyTest, UploadsOfOtherThreadsFulfillPromises) {
  const TensorSpec spec{DType::kInt64, {1}};
  for (Handle handle = 1; handle <= 100; ++handle) {
    ASSERT_TRUE(engine_->Promise(*session_, handle, spec, "cpu:0").ok());
  }
  RunInThreads([this](int thread) {
    for (Handle handle = 1; handle <= 100; ++handle) {
      if (static_cast<int>(handle) % kThreads == thread) {
        EXPECT_TRUE(Upload(handle, {static_cast<int64_t>(handle)}).ok());
      } else {
        EXPECT_TRUE(Run("neg", {handle}, handle + 1000 * (thread + 1)).ok());
      }
    }
  });
  Settle();
  for (Handle handle = 1; handle <= 100; ++handle) {
    for (int thread = 0; thread < kThreads; ++thread) {
      if (static_cast<int>(handle) % kThreads == thread) continue;
      EXPECT_EQ((*Read(handle + 1000 * (thread + 1)))[0], -static_cast<int64_t>(handle));
    }
  }
}

}  // namespace
}  // namespace tensord::server
