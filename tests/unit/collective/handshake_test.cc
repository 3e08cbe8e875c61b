// The handshake between members of a group, and other connections to their ports.
#include "tensord/server/communicator/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>

#include "absl/strings/match.h"

namespace tensord::server {
namespace {

using std::chrono::milliseconds;

constexpr char kId[] = "0123456789abcdef";

class HandshakeTest : public testing::Test {
 protected:
  void Listen(int size, milliseconds timeout = milliseconds(20000)) {
    for (int rank = 0; rank < size; ++rank) {
      auto listener = GroupListener::Listen(network_, rank, size, kId, "note");
      ASSERT_TRUE(listener.ok()) << listener.status();
      addresses_.push_back((*listener)->address());
      listeners_.push_back(*std::move(listener));
      meshes_.push_back(std::make_unique<PeerMesh>(rank, size, timeout));
    }
  }

  std::future<absl::Status> Connect(int rank) {
    return std::async(std::launch::async, [this, rank] {
      std::vector<std::string> notes;
      return listeners_[rank]->Connect(addresses_, meshes_[rank].get(), &notes);
    });
  }

  // Opens a connection to a member's port. The caller closes it.
  int OpenConnection(int rank) {
    sockaddr_storage storage;
    const socklen_t length = listeners_[rank]->endpoint().ToSockaddr(&storage);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&storage), length), 0);
    return fd;
  }

  const CollectiveNetwork network_ = *CollectiveNetwork::Find("127.0.0.1");
  std::vector<std::unique_ptr<GroupListener>> listeners_;
  std::vector<std::unique_ptr<PeerMesh>> meshes_;
  std::vector<std::string> addresses_;
};

TEST_F(HandshakeTest, ConnectsAllMembers) {
  Listen(5);
  std::vector<std::future<absl::Status>> connecting;
  for (int rank : {4, 2, 0, 3, 1}) connecting.push_back(Connect(rank));
  for (auto& connected : connecting) EXPECT_TRUE(connected.get().ok());
  for (int rank = 0; rank < 5; ++rank) {
    for (int peer = 0; peer < 5; ++peer) {
      EXPECT_EQ(meshes_[rank]->HasPeer(peer), peer != rank);
    }
  }
}

TEST_F(HandshakeTest, ClosesOtherConnectionsAndConnectsTheGroup) {
  Listen(2);
  const int silent = OpenConnection(0), noisy = OpenConnection(0), closed = OpenConnection(0);
  const std::string garbage(1 << 16, '\xa5');
  EXPECT_GT(send(noisy, garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
  close(closed);
  auto lower = Connect(0);
  auto upper = Connect(1);
  EXPECT_TRUE(lower.get().ok());
  EXPECT_TRUE(upper.get().ok());
  char byte;
  EXPECT_LE(recv(noisy, &byte, 1, 0), 0) << "the member sends nothing";
  close(silent);
  close(noisy);
}

TEST_F(HandshakeTest, RejectsAMemberOfAnotherGroup) {
  Listen(2, milliseconds(300));
  // Rank 1 of another group connects to rank 0 of this group.
  auto foreign = GroupListener::Listen(network_, 1, 2, "another group id", "");
  ASSERT_TRUE(foreign.ok());
  auto lower = Connect(0);
  PeerMesh mesh(1, 2, milliseconds(300));
  std::vector<std::string> notes;
  EXPECT_TRUE(absl::IsInvalidArgument((*foreign)->Connect(addresses_, &mesh, &notes)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(lower.get()));
  EXPECT_FALSE(meshes_[0]->HasPeer(1));
}

TEST_F(HandshakeTest, RejectsAForgedProof) {
  Listen(2, milliseconds(2000));
  auto lower = Connect(0);
  const int fd = OpenConnection(0);
  // Sends a valid greeting, and then a false proof.
  std::string greeting = "tnsrdcg1";
  greeting += std::string("\1\0\0\0\0\0\0\0", 8) + std::string(16, 'n');
  ASSERT_EQ(send(fd, greeting.data(), greeting.size(), 0), 32);
  char answer[48];
  ASSERT_EQ(recv(fd, answer, sizeof(answer), MSG_WAITALL), 48);
  // Sends the member's own proof back. It must not prove the test's identity.
  ASSERT_EQ(send(fd, answer + 16, 32, 0), 32);
  EXPECT_LE(recv(fd, answer, 1, 0), 0);
  close(fd);
  EXPECT_TRUE(absl::IsDeadlineExceeded(lower.get()));
}

TEST_F(HandshakeTest, ConnectsOnlyToAddressesOnTheNetwork) {
  Listen(2);
  const auto narrow = CollectiveNetwork::Find("127.0.0.9/32");
  ASSERT_TRUE(narrow.ok());
  auto listener = GroupListener::Listen(*narrow, 1, 2, kId, "");
  ASSERT_TRUE(listener.ok());
  addresses_[1] = (*listener)->address();
  PeerMesh mesh(1, 2, milliseconds(300));
  std::vector<std::string> notes;
  const absl::Status refused = (*listener)->Connect(addresses_, &mesh, &notes);
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(), "--collectives"));
}

TEST_F(HandshakeTest, DetectsALostMemberAtOnce) {
  Listen(2);
  listeners_[0].reset();
  EXPECT_TRUE(absl::IsAborted(Connect(1).get()));
}

TEST_F(HandshakeTest, CancelEndsConnect) {
  Listen(2);
  auto lower = Connect(0);
  meshes_[0]->Cancel(absl::CancelledError("enough"));
  EXPECT_TRUE(absl::IsCancelled(lower.get()));
}

}  // namespace
}  // namespace tensord::server
