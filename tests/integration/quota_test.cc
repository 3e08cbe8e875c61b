// Quotas of a daemon: errors name the limit, in their messages and in their details for programs.
#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/tests/integration/daemon_fixture.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;

class QuotaTest : public DaemonFixture {
 protected:
  QuotaTest()
      : DaemonFixture({"--max-bytes-per-session=1MiB", "--max-bytes-per-principal=1536KiB",
                       "--max-sessions-per-principal=3", "--max-handles-per-principal=100",
                       "--max-upload-bytes-per-principal=300000"}) {}

  absl::StatusOr<v1::Session> Open() {
    return client_->Call<v1::Session>("OpenSession", v1::OpenSessionRequest());
  }
};

TEST_F(QuotaTest, RefusedCallNamesTheLimit) {
  ASSERT_TRUE(session_->Ones(1, {1 << 18}).ok()) << "fits exactly";
  const absl::Status refused = session_->Ones(2, {1}).status();
  ExpectError(refused, Code::kResourceExhausted, {"cpu:0", "--max-bytes-per-session=1048576"});
  EXPECT_EQ(ErrorReason(refused), "SESSION_BYTES_EXCEEDED");
  EXPECT_EQ(ErrorMetadataValue(refused, "limit"), "max-bytes-per-session");
  EXPECT_TRUE(refused.GetPayload(kQuotaFailureUrl).has_value());
  EXPECT_TRUE(refused.GetPayload(kRetryInfoUrl).has_value());
  EXPECT_TRUE(session_->Ones(2, {1}, "cpu:1").ok()) << "the handle is free, the other device, too";
  RpcSession other(*client_);
  ExpectError(other.Ones(1, {1 << 18}), Code::kResourceExhausted,
              {"--max-bytes-per-principal=1572864"});
  EXPECT_TRUE(other.Ones(1, {1 << 17}).ok());
  EXPECT_EQ(Used(0), 3 << 19);
  ASSERT_TRUE(session_->Delete({1}).ok());
  EXPECT_TRUE(session_->Ones(3, {1 << 18}).ok());
}

TEST_F(QuotaTest, StreamErrorSticksToTheHandle) {
  v1::SessionStreamRequest attach = session_->Attach();
  v1::Op* op = attach.add_commands()->mutable_op();
  op->set_name("ones");
  op->set_output(7);
  op->set_device("cpu:0");
  (*op->mutable_attrs())["shape"].mutable_ints()->add_values(1 << 20);
  attach.add_commands()->mutable_barrier()->set_barrier_id(1);  // answered when the op has run
  std::vector<v1::HandleError> errors;
  const absl::Status ended = RunStream(*client_, {attach}, [&errors](const auto& answer) {
    errors.insert(errors.end(), answer.errors().begin(), answer.errors().end());
  });
  ASSERT_TRUE(ended.ok()) << ended;
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].handle(), 7u);
  const absl::Status reported =
      StatusFromCode(errors[0].code(), errors[0].message(), errors[0].status_details());
  EXPECT_EQ(ErrorReason(reported), "SESSION_BYTES_EXCEEDED");
  const absl::Status kept = session_->Read(7).status();
  EXPECT_EQ(kept, reported);
  ExpectEventuallyUsed(0, 0);
}

// No quota is reached here: the device itself is full.
class FullDeviceTest : public DaemonFixture {
 protected:
  // Expects the details of an error of a 64 MiB device that holds 40 MiB.
  static void ExpectFull(const absl::Status& status, const std::string& requested, bool may_fit) {
    ExpectError(status, Code::kResourceExhausted, {"cpu:1", requested, "67108864"});
    EXPECT_EQ(ErrorReason(status), "DEVICE_OUT_OF_MEMORY");
    EXPECT_EQ(ErrorMetadataValue(status, "device"), "cpu:1");
    EXPECT_EQ(ErrorMetadataValue(status, "requested_bytes"), requested);
    EXPECT_EQ(ErrorMetadataValue(status, "free_bytes"), "25165824");
    EXPECT_EQ(ErrorMetadataValue(status, "limit_bytes"), "67108864");
    EXPECT_FALSE(status.GetPayload(kQuotaFailureUrl).has_value());
    EXPECT_EQ(status.GetPayload(kRetryInfoUrl).has_value(), may_fit);
  }
};

TEST_F(FullDeviceTest, EveryMethodGivesDetails) {
  ASSERT_TRUE(session_->Ones(1, {10 << 20}, "cpu:1").ok());
  ASSERT_TRUE(session_->Ones(2, {8 << 20}, "cpu:0").ok());
  ExpectFull(session_->Run("neg", {1}, 3).status(), "41943040", true);
  ExpectFull(session_->Copy(2, 4, "cpu:1").status(), "33554432", true);
  auto write = client_->Write();
  write->Send(session_->FirstWrite(5, {DType::kUInt8, {65 << 20}}, "cpu:1"));
  ExpectFull(write->Finish().status(), "68157440", false);
  ASSERT_TRUE(session_->Delete({1}).ok());
  EXPECT_TRUE(session_->Ones(6, {16 << 20}, "cpu:1").ok());
}

TEST_F(QuotaTest, LimitsSessionsHandlesAndUploads) {
  const auto second = Open(), third = Open(), fourth = Open();
  ASSERT_TRUE(second.ok() && third.ok());
  ExpectError(fourth, Code::kResourceExhausted, {"--max-sessions-per-principal=3", "after 30 s"});
  EXPECT_EQ(ErrorReason(fourth.status()), "PRINCIPAL_SESSIONS_EXCEEDED");
  v1::CloseSessionRequest close;
  close.set_session(second->session());
  ASSERT_TRUE(client_->Call<v1::CloseSessionResponse>("CloseSession", close).ok());
  EXPECT_TRUE(Open().ok());
  for (uint64_t handle = 1; handle <= 100; ++handle) ASSERT_TRUE(session_->Ones(handle, {1}).ok());
  ExpectError(session_->Ones(101, {1}), Code::kResourceExhausted,
              {"--max-handles-per-principal=100"});
  ASSERT_TRUE(session_->Delete({1, 2}).ok());
  auto write = client_->Write();
  v1::WriteRequest first = session_->FirstWrite(1, {DType::kUInt8, {300'001}});
  write->Send(first);
  ExpectError(write->Finish(), Code::kResourceExhausted,
              {"--max-upload-bytes-per-principal=300000"});
}

TEST_F(QuotaTest, LostSessionsHaveAReason) {
  v1::GetTensorRequest request;
  request.set_handle(1);
  request.set_session(session_->id() + "0");
  EXPECT_EQ(ErrorReason(client_->Call<v1::Tensor>("GetTensor", request).status()),
            "SESSION_NOT_FOUND");
  std::string older = session_->id();
  older[0] = older[0] == '0' ? '1' : '0';
  request.set_session(older);
  const absl::Status lost = client_->Call<v1::Tensor>("GetTensor", request).status();
  EXPECT_EQ(lost.code(), Code::kDataLoss);
  EXPECT_EQ(ErrorReason(lost), "SERVER_RESTARTED");
}

}  // namespace
}  // namespace tensord::integration
