// Messages over a group's connections, and peers that send invalid messages.
#include "tensord/server/communicator/peer_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <memory>
#include <numeric>
#include <thread>

namespace tensord::server {
namespace {

using std::chrono::milliseconds;

// The header of a frame, in the wire format.
struct RawFrame {
  uint32_t kind;
  uint32_t code;
  uint64_t slot;
  uint64_t bytes;
};
constexpr uint32_t kWord = 0x7a01, kData = 0x7a02, kGoodbye = 0x7a03;

// Two members, each connected with the other.
class PeerMeshTest : public testing::Test {
 protected:
  void Connect(milliseconds timeout = milliseconds(20000)) {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    left_ = std::make_unique<PeerMesh>(0, 2, timeout);
    left_->Adopt(1, fds[0]);
    right_ = std::make_unique<PeerMesh>(1, 2, timeout);
    right_->Adopt(0, fds[1]);
  }

  // Makes one member. The test is its peer.
  void ConnectRaw(milliseconds timeout = milliseconds(20000)) {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    left_ = std::make_unique<PeerMesh>(0, 2, timeout);
    left_->Adopt(1, fds[0]);
    raw_ = fds[1];
  }
  void SendRaw(const RawFrame& frame, const std::string& content = "") {
    ASSERT_EQ(send(raw_, &frame, sizeof(frame), 0), static_cast<ssize_t>(sizeof(frame)));
    ASSERT_EQ(send(raw_, content.data(), content.size(), 0), static_cast<ssize_t>(content.size()));
  }
  void TearDown() override {
    if (raw_ >= 0) close(raw_);
  }

  std::unique_ptr<PeerMesh> left_, right_;
  int raw_ = -1;
};

TEST_F(PeerMeshTest, WordsAreExchanged) {
  Connect();
  auto other = std::async(std::launch::async, [this] { return right_->Exchange("right"); });
  const auto words = left_->Exchange("left");
  ASSERT_TRUE(words.ok()) << words.status();
  EXPECT_THAT(*words, testing::ElementsAre("left", "right"));
  EXPECT_THAT(*other.get(), testing::ElementsAre("left", "right"));
}

TEST_F(PeerMeshTest, ElementsGoBothWaysAtOnce) {
  Connect();
  // More than the buffers of a connection hold.
  constexpr size_t kBytes = 32 << 20;
  const auto swap = [](PeerMesh* mesh, int peer, char own, std::vector<char>* received) {
    const std::vector<char> sent(kBytes, own);
    int receives = 0, sends = 0;
    mesh->Receive(peer, 5, received->data(), kBytes, &receives);
    mesh->Send(peer, 5, sent.data(), kBytes, &sends);
    const absl::Status status = mesh->Await(&receives);
    return status.ok() ? mesh->Await(&sends) : status;
  };
  std::vector<char> at_left(kBytes), at_right(kBytes);
  auto other =
      std::async(std::launch::async, [&] { return swap(right_.get(), 0, 'r', &at_right); });
  EXPECT_TRUE(swap(left_.get(), 1, 'l', &at_left).ok());
  EXPECT_TRUE(other.get().ok());
  EXPECT_EQ(at_left, std::vector<char>(kBytes, 'r'));
  EXPECT_EQ(at_right, std::vector<char>(kBytes, 'l'));
}

TEST_F(PeerMeshTest, WatchEndsWhenItIsWoken) {
  Connect();
  auto watching = std::async(std::launch::async, [this] { return left_->Watch(); });
  left_->Wake();
  EXPECT_TRUE(watching.get().ok());
}

TEST_F(PeerMeshTest, CancelEndsWaitingCalls) {
  Connect();
  auto waiting = std::async(std::launch::async, [this] { return left_->Exchange("left"); });
  left_->Cancel(absl::CancelledError("enough"));
  EXPECT_TRUE(absl::IsCancelled(waiting.get().status()));
  EXPECT_TRUE(absl::IsCancelled(left_->Watch()));
}

TEST_F(PeerMeshTest, TimeoutNamesTheLateRankToAllMembers) {
  Connect(milliseconds(50));
  const absl::Status late = left_->Exchange("left").status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late));
  EXPECT_THAT(std::string(late.message()), testing::HasSubstr("50 ms for rank 1"));
  EXPECT_EQ(right_->Watch(), late) << "the other member receives the error";
  EXPECT_EQ(right_->Exchange("right").status(), late);
}

TEST_F(PeerMeshTest, LeavingPeerAbortsTheGroup) {
  Connect();
  right_->Leave(absl::OkStatus());
  const absl::Status status = left_->Watch();
  EXPECT_TRUE(absl::IsAborted(status));
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("rank 1 of the group has left"));
}

TEST_F(PeerMeshTest, LostPeerAbortsTheGroup) {
  Connect();
  right_.reset();
  const absl::Status status = left_->Exchange("left").status();
  EXPECT_TRUE(absl::IsAborted(status)) << status;
}

TEST_F(PeerMeshTest, PeerMayLeaveAfterItsLastMessage) {
  Connect();
  char element = 'x', received = 0;
  int sent = 0, receives = 0;
  auto words = std::async(std::launch::async, [this] { return right_->Exchange("w"); });
  ASSERT_TRUE(left_->Exchange("w").ok());
  ASSERT_TRUE(words.get().ok());
  right_->Send(0, 1, &element, 1, &sent);
  ASSERT_TRUE(right_->Await(&sent).ok());
  right_->Leave(absl::OkStatus());
  left_->Receive(1, 1, &received, 1, &receives);
  EXPECT_TRUE(left_->Await(&receives).ok());
  EXPECT_EQ(received, 'x');
  EXPECT_TRUE(absl::IsAborted(left_->Watch()));
}

// Two peers have ended an operation, and leave one after the other: the first one because it is
// done, the second one because it finds that the first one has left. The third member still waits.
TEST_F(PeerMeshTest, PeersThatLeaveBetweenOperationsDoNotEndTheRunningOperation) {
  int fds[3][2];
  for (auto& pair : fds) ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
  std::vector<std::unique_ptr<PeerMesh>> meshes;
  for (int rank = 0; rank < 3; ++rank) {
    meshes.push_back(std::make_unique<PeerMesh>(rank, 3, milliseconds(20000)));
    for (int next = 1; next < 3; ++next) {
      const int peer = (rank + next) % 3;
      meshes[rank]->Adopt(peer, next == 1 ? fds[rank][0] : fds[peer][1]);
    }
  }
  auto first = std::async(std::launch::async, [&] { return meshes[0]->Exchange("0"); });
  auto second = std::async(std::launch::async, [&] { return meshes[1]->Exchange("1"); });
  ASSERT_TRUE(meshes[2]->Exchange("2").ok());
  ASSERT_TRUE(first.get().ok());
  ASSERT_TRUE(second.get().ok());
  char element = 'x', received = 0;
  int sent = 0, receives = 0;
  meshes[1]->Send(2, 1, &element, 1, &sent);
  meshes[0]->Leave(absl::OkStatus());
  const absl::Status found = meshes[1]->Watch();
  EXPECT_THAT(std::string(found.message()), testing::HasSubstr("rank 0 of the group has left"));
  meshes[2]->Receive(1, 1, &received, 1, &receives);
  EXPECT_TRUE(meshes[2]->Await(&receives).ok());
  EXPECT_EQ(received, 'x');
  EXPECT_EQ(meshes[2]->Watch(), found);
}

TEST_F(PeerMeshTest, InvalidFramesEndOnlyTheGroup) {
  const std::string zeros(64, '\0');
  const std::vector<std::pair<RawFrame, std::string>> nonsense = {
      {{0, 0, 0, 0}, ""},
      {{0xffffffff, 0xffffffff, ~uint64_t{0}, ~uint64_t{0}}, zeros},
      {{kWord, 0, 0, uint64_t{1} << 40}, zeros},
      {{kWord, 0, 0, ~uint64_t{0}}, zeros},
      {{kData, 0, 0, 64}, zeros},
      {{kGoodbye, 3, 0, 4}, "what"},
      {{kGoodbye, 0, 0, ~uint64_t{0}}, ""}};
  for (const auto& [frame, content] : nonsense) {
    ConnectRaw();
    SendRaw(frame, content);
    const absl::Status status = left_->Watch();
    EXPECT_TRUE(absl::IsAborted(status)) << frame.kind << " " << status;
    close(raw_);
  }
  raw_ = -1;
}

TEST_F(PeerMeshTest, APeerMayBeOneWordAhead) {
  ConnectRaw();
  SendRaw({kWord, 0, 0, 1}, "a");
  SendRaw({kWord, 0, 0, 1}, "b");
  EXPECT_THAT(*left_->Exchange("left"), testing::ElementsAre("left", "a"));
  EXPECT_THAT(*left_->Exchange("again"), testing::ElementsAre("again", "b"));
}

TEST_F(PeerMeshTest, RejectsThreeWordsAtOnce) {
  ConnectRaw();
  for (const char* word : {"a", "b", "c"}) SendRaw({kWord, 0, 0, 1}, word);
  EXPECT_TRUE(absl::IsAborted(left_->Watch()));
}

TEST_F(PeerMeshTest, RejectsDataThatWasNotRequested) {
  for (const RawFrame& frame : {RawFrame{kData, 0, 7, 9}, RawFrame{kData, 0, 7, 7},
                                RawFrame{kData, 0, 6, 8}, RawFrame{kData, 0, 7, ~uint64_t{0}}}) {
    ConnectRaw();
    SendRaw({kWord, 0, 0, 0});
    ASSERT_TRUE(left_->Exchange("").ok());
    SendRaw(frame, std::string(16, '!'));
    char memory[8] = {};
    int receives = 0;
    left_->Receive(1, 7, memory, sizeof(memory), &receives);
    EXPECT_TRUE(absl::IsAborted(left_->Await(&receives)));
    EXPECT_EQ(std::string(memory, 8), std::string(8, '\0'));
    close(raw_);
  }
  raw_ = -1;
}

TEST_F(PeerMeshTest, IncompleteFrameTimesOut) {
  ConnectRaw(milliseconds(50));
  const char half[10] = {1, 0x7a};
  ASSERT_EQ(send(raw_, half, sizeof(half), 0), 10);
  EXPECT_TRUE(absl::IsDeadlineExceeded(left_->Exchange("left").status()));
}

}  // namespace
}  // namespace tensord::server
