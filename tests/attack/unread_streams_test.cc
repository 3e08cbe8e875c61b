// Attacks by an authenticated caller that reads nothing from its streams. The daemon must count
// what it hasn't sent, and still serve other callers.
#include <memory>
#include <string>
#include <vector>

#include "tensord/tests/attack/http2_fixture.h"

namespace tensord::attack {
namespace {

using integration::RpcClient;
using integration::RpcSession;

constexpr int64_t kElements = 1 << 18;             // float32: 1 MiB
const std::string kZeroWindow("\0\4\0\0\0\0", 6);  // settings: an initial window of 0

class UnreadStreamsTest : public TokenAttackFixture {
 protected:
  void SetUp() override {
    StartDaemon({TokenFileFlag({"alice", "mallory"}), "--max-response-bytes=32MiB"});
    max_growth_bytes_ = 48 << 20;
    BeginAttack();
    client_ = std::make_unique<RpcClient>(daemon_->address(),
                                          integration::RpcCredentials{.token = "mallory-token"});
  }

  // Returns the message that attaches to the session's stream and requests its tensor 1.
  static v1::SessionStreamRequest GetElements(const RpcSession& session) {
    v1::SessionStreamRequest message = session.Attach();
    v1::GetElements& get = *message.add_commands()->mutable_get_elements();
    get.set_handle(1);
    get.set_request_id(1);
    return message;
  }

  std::unique_ptr<RpcClient> client_;
  std::vector<std::unique_ptr<RpcSession>> sessions_;
};

// The client accepts no byte of a response. The responses would take 100 MiB. The caller's limit is
// 16 MiB.
TEST_F(UnreadStreamsTest, BoundsResponsesOfStreams) {
  constexpr uint32_t kStreams = 100;
  constexpr uint32_t kCancelled = 40;
  for (uint32_t i = 0; i < kStreams; ++i) {
    sessions_.push_back(std::make_unique<RpcSession>(*client_, /*lease_seconds=*/600));
    ASSERT_TRUE(sessions_.back()->Ones(1, {kElements}).ok());
  }
  growth_.emplace(*daemon_, "VmHWM");  // without the tensors
  RawHttp2 connection(daemon_->address());
  ASSERT_TRUE(connection.SendPreface());
  ASSERT_TRUE(connection.SendFrame(kSettings, 0, 0, kZeroWindow));
  const auto id = [](uint32_t i) { return 1 + 2 * i; };
  for (uint32_t i = 0; i < kStreams; ++i) {
    const std::string message = GrpcMessage(GetElements(*sessions_[i]).SerializeAsString());
    ASSERT_TRUE(
        connection.BeginCall(id(i), "SessionStream", {{"authorization", "Bearer mallory-token"}}));
    ASSERT_TRUE(connection.SendFrame(kData, kEndStream, id(i), message));
    // The server has applied the command.
    const auto tensor = sessions_[i]->Get(1, /*after_command=*/1);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
  }
  growth_->ExpectBelow(max_growth_bytes_);

  // Another caller gets large responses, from SessionStream and from ReadTensor.
  RpcClient client(daemon_->address(), {.token = kAlice});
  RpcSession alice(client);
  ASSERT_TRUE(alice.Ones(1, {kElements}).ok());
  size_t bytes = 0;
  const absl::Status ended = integration::RunStream(
      client, {GetElements(alice)}, [&bytes](const v1::SessionStreamResponse& response) {
        for (const v1::Elements& elements : response.elements()) bytes += elements.data().size();
      });
  EXPECT_TRUE(ended.ok()) << ended;
  EXPECT_EQ(bytes, sizeof(float) * kElements);
  EXPECT_TRUE(alice.ReadFloats(1).ok());

  // Streams that wait can be cancelled. The others go on when the client reads.
  for (uint32_t i = kStreams - kCancelled; i < kStreams; ++i) {
    ASSERT_TRUE(connection.SendFrame(kRstStream, 0, id(i), std::string("\0\0\0\x08", 4)));
  }
  ASSERT_TRUE(connection.SendFrame(kWindowUpdate, 0, 0, std::string("\x0f\0\0\0", 4)));
  ASSERT_TRUE(connection.SendFrame(kSettings, 0, 0, std::string("\0\4\0\x40\0\0", 6)));
  for (uint32_t i = 0; i < kStreams - kCancelled; ++i) {
    ASSERT_EQ(connection.AwaitEnd(id(i)), RawHttp2::CallEnd::kResponse) << i;
  }
  for (const auto& session : sessions_) EXPECT_TRUE(session->Close().ok());
}

}  // namespace
}  // namespace tensord::attack
