// Copies from server to server over several slow connections.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tensord/tests/integration/peer_fixture.h"
#include "tensord/tests/mib.h"
#include "tensord/tests/proxy/delay_proxy.h"

namespace tensord::integration {
namespace {

using proxy::DelayProxy;
using Code = absl::StatusCode;

constexpr int64_t kSize = 128 * kMiB;
const TensorSpec kSpreadSpec{DType::kFloat32, {kSize / 4}};

class PullSpreadTest : public testing::Test {
 protected:
  void SetUp() override {
    auto started = DelayProxy::Start(
        {.target = a_.address(), .bytes_per_second = 100 * kMiB, .max_buffered_bytes = 2 * kMiB});
    ASSERT_TRUE(started.ok()) << started.status();
    proxy_ = *std::move(started);
  }

  // Expects that each server that still runs exits with 0.
  void TearDown() override {
    for (Node* node : {&a_, &b_, &single_}) node->TerminateIfRunning();
  }

  std::string Ticket(const Node& destination, uint64_t handle = 1) {
    const auto ticket = a_.Ticket(handle, destination);
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    return ticket.ok() ? ticket->ticket() : "";
  }
  auto PullAsync(uint64_t handle = 1) {
    return b_.PullAsync(2, kSpreadSpec, a_, Ticket(b_, handle), proxy_->address());
  }
  bool AwaitBytes(int64_t bytes) {
    return proxy_->Await([=](const auto& stats) { return stats.bytes_to_client > bytes; });
  }
  // Describes the progress of a pull, for a failed test.
  template <typename Future>
  std::string Progress(Future& pulled) {
    const auto stats = proxy_->stats();
    std::string text =
        absl::StrCat(stats.bytes_to_client, " bytes were received over ", stats.connections,
                     " connections (", stats.accepted, " were accepted), ",
                     stats.pending_to_client_bytes, " more are in the proxy. The fetch ");
    if (pulled.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      return text + "is active";
    }
    return text + "has ended: " + pulled.get().status().ToString();
  }
  bool AwaitConnections(int64_t connections) {
    return proxy_->Await([=](const auto& stats) { return stats.connections >= connections; });
  }

  const std::vector<std::string> by_network_ = {"TENSORD_SHARED_MEMORY=0"};
  Node a_{{Node::kAnyPeer}, {}, by_network_};
  Node b_{{Node::kAnyPeer}, {}, by_network_};
  Node single_{{Node::kAnyPeer, "--peer-connections=1"}, {}, by_network_};
  std::unique_ptr<DelayProxy> proxy_;
};

TEST_F(PullSpreadTest, UsesSeveralConnectionsIfOneIsSlow) {
  a_.Random(1, kSize / 4);
  const auto outcome = PullAsync().get();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->connections(), 4);
  EXPECT_EQ(outcome->path(), v1::COPY_PATH_NETWORK);
  EXPECT_EQ(outcome->bytes(), kSize);
  EXPECT_EQ(outcome->resumptions(), 0);
  EXPECT_GE(proxy_->stats().accepted, 4);
  EXPECT_TRUE(*b_.Bytes(2) == *a_.Bytes(1));
  // The used ticket doesn't keep the tensor's memory.
  ASSERT_TRUE(a_.session->Delete({1}).ok());
  EXPECT_TRUE(Eventually([&] { return UsedBytes(*a_.client, "cpu:0") == 0; }));
}

TEST_F(PullSpreadTest, UsesOneConnectionIfMoreAreNotAllowed) {
  a_.Random(1, kSize / 4);
  const auto outcome = single_.Pull(2, kSpreadSpec, a_, Ticket(single_), proxy_->address());
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->connections(), 1);
  EXPECT_EQ(proxy_->stats().accepted, 1);
  EXPECT_TRUE(*single_.Bytes(2) == *a_.Bytes(1));
}

// In the following tests, the source is an upload that has not sent its last bytes. So the copy
// can't end before the test cuts the connections, kills the source or closes the session.
TEST_F(PullSpreadTest, ResumesAfterConnectionsAreCut) {
  PartialUpload upload(a_, 3, kSpreadSpec, Pattern(kSize));
  auto pulled = PullAsync(3);
  for (int64_t cut = 1; cut <= 3; ++cut) {
    const int64_t passed = proxy_->stats().bytes_to_client;
    upload.SendTo(cut * 40 * kMiB);
    ASSERT_TRUE(AwaitBytes(passed + 30 * kMiB)) << Progress(pulled);
    proxy_->CutAll();
  }
  ASSERT_TRUE(upload.Finish().ok());
  const auto outcome = pulled.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->bytes(), kSize) << "bytes that have arrived aren't received again";
  EXPECT_TRUE(*b_.Bytes(2) == upload.bytes());
}

TEST_F(PullSpreadTest, ClosingTheSessionEndsItsPull) {
  PartialUpload upload(a_, 3, kSpreadSpec, Pattern(kSize));
  b_.Promise(2, kSpreadSpec);
  auto pulled = PullAsync(3);
  upload.SendTo(kSize - kMiB);
  ASSERT_TRUE(AwaitConnections(4));
  ASSERT_TRUE(b_.session->Close().ok());
  EXPECT_FALSE(pulled.get().ok());
  EXPECT_TRUE(Eventually([&] { return UsedBytes(*b_.client, "cpu:0") == 0; }));
  upload.Cancel();
}

TEST_F(PullSpreadTest, LostSourceKeepsReceivedBytesWithoutGaps) {
  PartialUpload to_source(a_, 3, kSpreadSpec, Pattern(kSize));
  b_.Promise(2, kSpreadSpec);
  auto pulled = PullAsync(3);
  to_source.SendTo(100 * kMiB);
  ASSERT_TRUE(AwaitBytes(60 * kMiB)) << Progress(pulled);
  a_.daemon->Signal(SIGKILL);
  ExpectError(pulled.get(), Code::kUnavailable, {proxy_->address()});
  const auto upload = b_.Upload(2);
  ASSERT_TRUE(upload.ok()) << upload.status();
  EXPECT_GT(upload->received_bytes(), 0);
  EXPECT_LT(upload->received_bytes(), kSize);
  // The test uploads the rest.
  ASSERT_TRUE(b_.UploadBytes(2, kSpreadSpec, to_source.bytes(), upload->received_bytes()).ok());
  EXPECT_TRUE(*b_.Bytes(2) == to_source.bytes());
}

TEST_F(PullSpreadTest, ForwardsAnActiveUpload) {
  PartialUpload upload(a_, 3, kSpreadSpec, Pattern(kSize));
  auto pulled = PullAsync(3);
  upload.SendTo(48 * kMiB);
  // Waits until the other server has received most of the bytes that have been uploaded.
  ASSERT_TRUE(AwaitBytes(40 * kMiB)) << Progress(pulled);
  ASSERT_TRUE(upload.Finish().ok());
  const auto outcome = pulled.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->connections(), 4);
  EXPECT_TRUE(*b_.Bytes(2) == upload.bytes());
}

}  // namespace
}  // namespace tensord::integration
