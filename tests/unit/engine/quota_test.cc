// Quotas are exact to the byte, even if many sessions allocate at the same time. Freed bytes are
// returned completely.
#include <stdlib.h>

#include <atomic>
#include <barrier>
#include <thread>

#include "tensord/common/status_details.h"
#include "tensord/server/device/cpu/cpu_device.h"
#include "tensord/tests/unit/engine/engine_fixture.h"

namespace tensord::server {
namespace {

using Code = absl::StatusCode;

constexpr int kRacers = 64;
constexpr int64_t kSessionQuota = 100'000;
constexpr int64_t kPrincipalQuota = 1'000'000;

constexpr Limits kQuotas{.max_bytes_per_session = kSessionQuota,
                         .max_handles_per_principal = 500,
                         .max_bytes_per_principal = kPrincipalQuota,
                         .max_upload_bytes_per_principal = 64'000};

// Uses the real CPU device, which runs small ops on the calling thread.
class QuotaTest : public testing::Test {
 protected:
  QuotaTest() {
    std::vector<std::unique_ptr<Device>> devices;
    for (int i = 0; i < 2; ++i) {
      devices.push_back(*MakeCpuDevice({DeviceKind::kCpu, i}, int64_t{1} << 30, 1));
    }
    engine_ = std::make_unique<Engine>(std::move(devices));
    sessions_ = std::make_unique<SessionTable>(kQuotas, engine_->slots());
    session_ = Open();
  }

  SessionRef Open(absl::string_view name = "tester") {
    return *sessions_->Open(Named(name), kTestLeaseSeconds, "test");
  }
  DeviceSlot* slot(int i = 0) { return engine_->slots()[i]; }
  int64_t DeviceBytes(int i = 0) { return slot(i)->device->memory().used_bytes; }
  PrincipalRef Named(absl::string_view name = "tester") {
    return principals_.Get(Principal::Kind::kToken, name);
  }
  int64_t PrincipalBytes() { return Named()->device_bytes(0).used(); }

  // Makes a tensor of `bytes` zeros. Blocks until it is done and returns its status.
  absl::Status Make(const SessionRef& session, Handle handle, int64_t bytes,
                    absl::string_view device = "cpu:0") {
    const auto tensor = engine_->Run(
        session, {.op = "zeros",
                  .output = handle,
                  .attrs = {{"shape", std::vector<int64_t>{bytes}}, {"dtype", DType::kUInt8}},
                  .device = device});
    return Outcome(tensor);
  }
  absl::Status Run(const SessionRef& session, absl::string_view op, Handle input, Handle output,
                   Attributes attrs = {}) {
    return Outcome(engine_->Run(
        session, {.op = op, .inputs = {input}, .output = output, .attrs = std::move(attrs)}));
  }
  static absl::Status Outcome(const absl::StatusOr<TensorRef>& tensor) {
    if (!tensor.ok()) return tensor.status();
    Event done;
    (*tensor)->WhenDone([done] { done.Set(); });
    if (!done.Wait()) return absl::DeadlineExceededError("the tensor isn't done");
    return (*tensor)->status();
  }

  PrincipalTable principals_{kQuotas};
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<SessionTable> sessions_;
  SessionRef session_;
};

TEST_F(QuotaTest, SessionGetsExactlyItsBytes) {
  ASSERT_TRUE(Make(session_, 1, kSessionQuota - 10).ok());
  const absl::Status refused = Make(session_, 2, 11);
  ExpectError(refused, Code::kResourceExhausted,
              {"cpu:0", "11 bytes", "10 bytes", "--max-bytes-per-session=100000"});
  EXPECT_EQ(ErrorReason(refused), "SESSION_BYTES_EXCEEDED");
  EXPECT_EQ(ErrorMetadataValue(refused, "limit"), "max-bytes-per-session");
  EXPECT_EQ(ErrorMetadataValue(refused, "value"), "100000");
  EXPECT_TRUE(refused.GetPayload(kQuotaFailureUrl).has_value());
  EXPECT_TRUE(refused.GetPayload(kRetryInfoUrl).has_value());
  EXPECT_EQ(DeviceBytes(), kSessionQuota - 10) << "a refused tensor takes no memory";
  EXPECT_TRUE(Make(session_, 3, 10).ok());
  EXPECT_TRUE(Make(session_, 4, kSessionQuota, "cpu:1").ok()) << "each device has its own";
  ExpectError(Run(session_, "reshape", 2, 5, {{"shape", std::vector<int64_t>{11}}}),
              Code::kResourceExhausted, {"--max-bytes-per-session"});
  session_->Drop({1});
  EXPECT_TRUE(Make(session_, 6, kSessionQuota - 10).ok());
}

TEST_F(QuotaTest, SharedMemoryIsChargedOnce) {
  ASSERT_TRUE(Make(session_, 1, 60'000).ok());
  ASSERT_TRUE(Run(session_, "reshape", 1, 2, {{"shape", std::vector<int64_t>{600, 100}}}).ok());
  ASSERT_TRUE(engine_->Copy(session_, 1, 3, "cpu:0", /*share=*/true).ok());
  EXPECT_EQ(session_->account(*slot()).used_bytes(), 60'000);
  session_->Drop({1, 3});
  EXPECT_EQ(session_->account(*slot()).used_bytes(), 60'000) << "tensor 2 still uses the memory";
  session_->Drop({2});
  // The executor thread frees the op's inputs shortly after it has reported the result.
  EXPECT_TRUE(Eventually([&] { return session_->account(*slot()).used_bytes() == 0; }));
  EXPECT_EQ(PrincipalBytes(), 0);
}

TEST_F(QuotaTest, RefusedOpTakesNoMemory) {
  ASSERT_TRUE(Make(session_, 1, 80'000).ok());
  ASSERT_TRUE(Run(session_, "cast", 1, 2, {{"dtype", DType::kInt8}}).code() ==
              Code::kResourceExhausted);
  EXPECT_EQ(session_->account(*slot()).used_bytes(), 80'000);
}

TEST_F(QuotaTest, CountsHandlesOfAllSessionsOfACaller) {
  const SessionRef other = Open();
  for (Handle handle = 1; handle <= 250; ++handle) {
    ASSERT_TRUE(Make(session_, handle, 1).ok());
    ASSERT_TRUE(Make(other, handle, 1).ok());
  }
  ExpectError(Make(session_, 1000, 1), Code::kResourceExhausted,
              {"--max-handles-per-principal=500"});
  ASSERT_TRUE(Make(Open("another"), 1, 1).ok()) << "other callers aren't affected";
  EXPECT_EQ(*sessions_->Close(Named(), other->id()), 250);
  EXPECT_EQ(Named()->budget(PrincipalLimit::kHandles).used(), 250);
  EXPECT_TRUE(Make(session_, 1000, 1).ok());
}

TEST_F(QuotaTest, CountsActiveUploads) {
  const TensorSpec spec{DType::kUInt8, {40'000}};
  auto first = engine_->BeginUpload(*session_, 1, spec, "cpu:0");
  ASSERT_TRUE(first.ok()) << first.status();
  const SessionRef other = Open();
  ExpectError(engine_->BeginUpload(*other, 1, spec, "cpu:0"), Code::kResourceExhausted,
              {"--max-upload-bytes-per-principal=64000"});
  EXPECT_EQ(other->account(*slot()).used_bytes(), 0);
  ASSERT_TRUE(engine_->FinishUpload(*session_, *std::move(first), absl::OkStatus()).ok());
  EXPECT_EQ(Named()->budget(PrincipalLimit::kUploadBytes).used(), 0);
  EXPECT_TRUE(engine_->BeginUpload(*other, 1, spec, "cpu:0").ok());
  EXPECT_EQ(Named()->budget(PrincipalLimit::kUploadBytes).used(), 0) << "the upload was dropped";
}

TEST_F(QuotaTest, LimitsSessionsOfACaller) {
  SessionTable table({}, engine_->slots());
  PrincipalTable principals({.max_sessions_per_principal = 2});
  const PrincipalRef many = principals.Get(Principal::Kind::kToken, "many");
  const PrincipalRef another = principals.Get(Principal::Kind::kToken, "another");
  const auto first = table.Open(many, kTestLeaseSeconds, ""),
             second = table.Open(many, kTestLeaseSeconds, "");
  const auto third = table.Open(many, kTestLeaseSeconds, "");
  ExpectError(third, Code::kResourceExhausted, {"--max-sessions-per-principal=2"});
  EXPECT_EQ(ErrorReason(third.status()), "PRINCIPAL_SESSIONS_EXCEEDED");
  EXPECT_TRUE(table.Open(another, kTestLeaseSeconds, "").ok());
  ASSERT_TRUE(table.Close(many, (*first)->id()).ok());
  EXPECT_TRUE(table.Open(many, kTestLeaseSeconds, "").ok());
}

TEST_F(QuotaTest, MemoryThatOutlivesItsSessionStaysCharged) {
  ASSERT_TRUE(Make(session_, 1, 1000).ok());
  TensorRef held = *session_->Find(1);
  ASSERT_TRUE(sessions_->Close(Named(), session_->id()).ok());
  session_.reset();
  EXPECT_EQ(PrincipalBytes(), 1000);
  held.reset();
  EXPECT_EQ(PrincipalBytes(), 0);
}

// 64 sessions of one caller allocate by ops and uploads until they are refused. An observer thread
// checks that the quota is never exceeded. TENSORD_TEST_LONG=1 runs 1,000 rounds.
TEST_F(QuotaTest, ExactUnder64RacingSessions) {
  const int rounds = getenv("TENSORD_TEST_LONG") != nullptr ? 1000 : 50;
  std::vector<SessionRef> sessions;
  for (int i = 0; i < kRacers; ++i) sessions.push_back(Open());
  std::atomic<bool> over{false}, exceeded{false};
  std::atomic<int64_t> held_bytes{0}, wrong_errors{0};
  std::thread observer([&] {
    while (!over.load()) {
      if (DeviceBytes() > kPrincipalQuota || PrincipalBytes() > kPrincipalQuota) exceeded = true;
      std::this_thread::yield();
    }
  });
  std::barrier step(kRacers + 1);
  std::vector<std::thread> racers;
  for (int i = 0; i < kRacers; ++i) {
    racers.emplace_back([&, i] {
      for (int round = 0; round < rounds; ++round) {
        step.arrive_and_wait();
        absl::Status status;
        Handle handle = 0;
        int64_t held = 0;
        while (status.ok()) {
          const int64_t bytes =
              3001 + (i * 977 + round * 131 + static_cast<int64_t>(handle) * 53) % 9000;
          ++handle;
          if ((handle + i) % 2 == 0) {
            status = Make(sessions[i], handle, bytes);
          } else {
            auto upload =
                engine_->BeginUpload(*sessions[i], handle, {DType::kUInt8, {bytes}}, "cpu:0");
            status = upload.status();
            if (status.ok()) {
              status = engine_->FinishUpload(*sessions[i], *std::move(upload), absl::OkStatus());
            }
          }
          if (status.ok()) held += bytes;
        }
        if (status.code() != Code::kResourceExhausted) ++wrong_errors;
        held_bytes += held;
        step.arrive_and_wait();  // the main thread checks the totals
        step.arrive_and_wait();
        std::vector<Handle> handles(handle);
        for (Handle h = 1; h <= handle; ++h) handles[h - 1] = h;
        sessions[i]->Drop(handles);
        step.arrive_and_wait();
      }
    });
  }
  for (int round = 0; round < rounds; ++round) {
    held_bytes = 0;
    step.arrive_and_wait();
    step.arrive_and_wait();
    EXPECT_EQ(DeviceBytes(), held_bytes.load());
    EXPECT_EQ(PrincipalBytes(), held_bytes.load());
    EXPECT_LE(held_bytes.load(), kPrincipalQuota);
    EXPECT_GT(held_bytes.load(), kPrincipalQuota / 2);
    step.arrive_and_wait();
    step.arrive_and_wait();
    EXPECT_EQ(DeviceBytes(), 0);
    EXPECT_EQ(PrincipalBytes(), 0);
    EXPECT_EQ(Named()->budget(PrincipalLimit::kHandles).used(), 0);
    EXPECT_EQ(Named()->budget(PrincipalLimit::kUploadBytes).used(), 0);
  }
  for (std::thread& racer : racers) racer.join();
  over = true;
  observer.join();
  EXPECT_FALSE(exceeded.load());
  EXPECT_EQ(wrong_errors.load(), 0);
}

}  // namespace
}  // namespace tensord::server
