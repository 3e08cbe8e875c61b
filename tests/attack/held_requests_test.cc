// Attacks by an authenticated caller whose requests arrive, but can't be used yet. The daemon must
// count them, and still serve other callers.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tensord/tests/attack/http2_fixture.h"
#include "tensord/tests/expect_error.h"

namespace tensord::attack {
namespace {

using integration::Eventually;
using integration::RpcClient;
using integration::RpcSession;
using Code = absl::StatusCode;

class HeldRequestsTest : public TokenAttackFixture {
 protected:
  void SetUp() override {
    StartDaemon({TokenFileFlag({"alice", "mallory"}), "--max-request-bytes=64MiB"});
    BeginAttack();
  }

  std::unique_ptr<RpcClient> Connect() {
    auto client = std::make_unique<RpcClient>(
        daemon_->address(), integration::RpcCredentials{.token = "mallory-token"});
    client->set_deadline_seconds(600);
    return client;
  }
};

// The uploads wait for a command of the session's stream. Their messages take 128 MiB, and the
// caller's limit is 32 MiB.
TEST_F(HeldRequestsTest, BoundsUploadsThatWaitForACommand) {
  constexpr int kUploads = 8;
  constexpr int64_t kChunkBytes = 8 << 20;
  const auto client = Connect();
  RpcSession session(*client, /*lease_seconds=*/600);
  std::vector<std::unique_ptr<RpcClient>> connections;
  std::vector<absl::Status> ends(kUploads);
  std::atomic<int> ended = 0;
  std::vector<std::thread> uploads;
  for (int i = 0; i < kUploads; ++i) {
    if (i % 4 == 0) connections.push_back(Connect());
    uploads.emplace_back([&, i, connection = connections.back().get()] {
      const auto write = connection->Write();
      v1::WriteRequest chunk = session.FirstWrite(1 + i, {DType::kUInt8, {2 * kChunkBytes}});
      chunk.mutable_spec()->set_after_command(1);
      chunk.set_data(std::string(kChunkBytes, 'x'));
      if (write->Send(chunk)) {
        chunk.clear_spec();
        chunk.set_offset(kChunkBytes);
        write->Send(chunk);
      }
      ends[i] = write->Finish().status();
      ++ended;
    });
  }
  EXPECT_TRUE(Eventually([&] { return ended > 0; }));
  ExpectServed();
  growth_->ExpectBelow(max_growth_bytes_);
  growth_.reset();  // from now on, the daemon holds tensors

  v1::SessionStreamRequest command = session.Attach();
  command.add_commands()->mutable_drop()->add_handles(1000);
  EXPECT_TRUE(RunStream(*client, {command}).ok());
  for (std::thread& upload : uploads) upload.join();
  int served = 0;
  for (const absl::Status& end : ends) {
    served += end.ok() ? 1 : 0;
    if (!end.ok()) ExpectError(end, Code::kResourceExhausted, {"max-request-bytes"});
  }
  EXPECT_GT(served, 0);
  EXPECT_LT(served, kUploads);
}

}  // namespace
}  // namespace tensord::attack
