// Ops that take minutes stop when no caller can use their results any more. The device is then free
// for other ops.
#include <algorithm>
#include <future>

#include "tensord/common/status_details.h"
#include "tensord/tests/integration/daemon_fixture.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;

constexpr uint64_t kMatrix = 1, kOutput = 2;
constexpr int64_t kSize = 16384;

// A product of kMatrix with itself takes one thread many minutes, so that no test awaits its end.
class StopTest : public DaemonFixture {
 protected:
  explicit StopTest(std::vector<std::string> flags = {}, int64_t size = kSize)
      : DaemonFixture([&flags] {
          flags.push_back("--cpu-threads=2");  // one for each device
          return flags;
        }()),
        input_attrs_({{"shape", std::vector<int64_t>{size, size}}, {"dtype", DType::kUInt8}}) {}

  void SetUp() override {
    DaemonFixture::SetUp();
    other_client_ = std::make_unique<RpcClient>(daemon_->address());
    other_ = std::make_unique<RpcSession>(*other_client_);
    ASSERT_TRUE(other_->Ones(kMatrix, {4}).ok());
    ASSERT_TRUE(session_->Run("ones", {}, kMatrix, input_attrs_, "cpu:0").ok());
  }

  void TearDown() override {
    other_.reset();
    other_client_.reset();
    DaemonFixture::TearDown();
  }

  absl::StatusOr<v1::Tensor> MatMul() {
    v1::MatMulRequest request;
    request.set_session(session_->id());
    request.set_a(kMatrix);
    request.set_b(kMatrix);
    request.set_output(kOutput);
    return client_->Call<v1::Tensor>("MatMul", request);
  }

  // Returns whether the session has the tensor, done or not.
  bool HasTensor(uint64_t handle) {
    v1::ListTensorsRequest request;
    request.set_session(session_->id());
    const auto list = other_client_->Call<v1::ListTensorsResponse>("ListTensors", request);
    return list.ok() && std::any_of(list->tensors().begin(), list->tensors().end(),
                                    [&](const v1::Tensor& t) { return t.handle() == handle; });
  }

  // Sends `count` products on the stream of `session`.
  static std::unique_ptr<StreamCall> StreamProducts(const RpcSession& session, int count) {
    auto stream = session.client().SessionStream();
    v1::SessionStreamRequest message = session.Attach();
    for (int i = 0; i < count; ++i) {
      v1::Op& product = *message.add_commands()->mutable_op();
      product.set_name("matmul");
      product.add_inputs(kMatrix);
      product.add_inputs(kMatrix);
      product.set_output(kOutput + i);
    }
    EXPECT_TRUE(stream->Send(message));
    EXPECT_TRUE(stream->Next().has_value());
    return stream;
  }

  // Expects that the other session can compute on the device. A call would wait for at most a
  // minute.
  void ExpectDeviceIsFree() {
    const auto sum = other_->Add(kMatrix, kMatrix, 77);
    EXPECT_TRUE(sum.ok()) << sum.status();
    EXPECT_TRUE(other_->Delete({77}).ok());
  }

  const Attributes input_attrs_;
  std::unique_ptr<RpcClient> other_client_;
  std::unique_ptr<RpcSession> other_;
};

TEST_F(StopTest, ClosingASessionStopsItsRunningOp) {
  auto product = std::async(std::launch::async, [this] { return MatMul(); });
  ASSERT_TRUE(Eventually([this] { return HasTensor(kOutput); }));
  v1::CloseSessionRequest close;
  close.set_session(session_->id());
  ASSERT_TRUE(other_client_->Call<v1::CloseSessionResponse>("CloseSession", close).ok());
  ExpectError(product.get(), Code::kFailedPrecondition,
              {"matmul (tensor 2)", "the session has ended"});
  ExpectDeviceIsFree();
  EXPECT_TRUE(Eventually([this] { return Used(0) == 16; })) << "its memory isn't free";
}

TEST_F(StopTest, QueuedOpsOfAClosedSessionNeverRun) {
  const auto stream = StreamProducts(*session_, 3);
  ASSERT_TRUE(session_->Close().ok());
  ExpectDeviceIsFree();
  EXPECT_TRUE(Eventually([this] { return Used(0) == 16; })) << "their memory isn't free";
  stream->Cancel();
}

TEST_F(StopTest, ExpiredLeaseStopsTheRunningOp) {
  RpcClient leaving_client(daemon_->address());
  ASSERT_TRUE(session_->Close().ok());
  RpcSession leaving(leaving_client, kShortLeaseSeconds);
  ASSERT_TRUE(leaving.Run("ones", {}, kMatrix, input_attrs_, "cpu:0").ok());
  StreamProducts(leaving, 1)->Cancel();
  ExpectDeviceIsFree();
  EXPECT_TRUE(Eventually([this] { return Used(0) == 16; })) << "its memory isn't free";
}

TEST_F(StopTest, CallPastItsDeadlineStopsItsOp) {
  client_->set_deadline_seconds(1);
  ExpectError(MatMul(), Code::kDeadlineExceeded);
  client_->set_deadline_seconds(60);
  ExpectDeviceIsFree();
  EXPECT_TRUE(Eventually([this] { return !HasTensor(kOutput); }));
  EXPECT_TRUE(session_->Ones(kOutput, {4}).ok()) << "the session works on";
}

class TimeLimitTest : public StopTest {
 protected:
  // Even on a busy machine, the input is made within the limit. The product takes longer.
  TimeLimitTest() : StopTest({"--max-op-seconds=5"}, kSize / 2) {}
};

TEST_F(TimeLimitTest, OpThatRunsForTooLongStops) {
  const absl::Status status = MatMul().status();
  ExpectError(status, Code::kResourceExhausted, {"matmul (tensor 2)", "--max-op-seconds=5"});
  EXPECT_EQ(ErrorReason(status), "OP_SECONDS_EXCEEDED");
  ExpectDeviceIsFree();
  EXPECT_TRUE(session_->Ones(kOutput, {4}).ok()) << "the session works on";
}

}  // namespace
}  // namespace tensord::integration
