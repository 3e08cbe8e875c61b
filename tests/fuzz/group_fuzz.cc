// Fuzzes a member of a group of three. The other members send arbitrary frames or parts of frames
// while it runs operations. The member must not crash, write outside its receive buffers or exceed
// the timeout. After the first error, all operations must fail with the same error.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <string>
#include <vector>

#include "tensord/server/communicator/collective_op.h"
#include "tensord/server/communicator/peer_mesh.h"
#include "tensord/tests/fuzz/fuzz_input.h"

namespace tensord::server {
namespace {

using fuzz::FuzzInput;

constexpr int kMembers = 3;
constexpr std::chrono::milliseconds kTimeout{1};

// The head of a frame, in its wire format.
struct RawFrame {
  uint32_t kind;
  uint32_t code;
  uint64_t slot;
  uint64_t bytes;
};
constexpr uint32_t kKinds[] = {0x7a01, 0x7a01, 0x7a02, 0x7a02, 0x7a03, 0};

class Member {
 public:
  Member() : mesh_(0, kMembers, kTimeout) {
    for (int rank = 1; rank < kMembers; ++rank) {
      int fds[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0)
        std::abort();
      mesh_.Adopt(rank, fds[0]);
      others_[rank] = fds[1];
    }
  }
  ~Member() {
    mesh_.Leave(failed_);
    for (int rank = 1; rank < kMembers; ++rank) {
      if (others_[rank] >= 0) close(others_[rank]);
    }
  }

  void Step(FuzzInput& in) {
    const int other = in.Range(1, kMembers - 1);
    switch (in.Range(0, 9)) {
      case 0:
      case 1:
      case 2:
        return SendRaw(other, Frame(in));
      case 3:
        return SendRaw(other, in.Bytes(in.Range(0, 64)));
      case 4:
        return Disconnect(in, other);
      case 5:
        return Exchange(in);
      case 6:
        return Receive(in, other);
      case 7:
        return Send(in, other);
      case 8:
        return CheckStatus(mesh_.WatchFor(std::chrono::milliseconds(0)));
      default:
        mesh_.Wake();
        return CheckStatus(mesh_.Watch());
    }
  }

 private:
  static std::string Frame(FuzzInput& in) {
    RawFrame frame = {.kind = in.Pick(kKinds), .code = 0, .slot = 0, .bytes = 0};
    if (in.OneIn(4)) frame.code = in.Raw<uint32_t>() % 20;
    frame.slot = in.Range(0, 2);
    const std::string content = in.Bytes(in.Range(0, 24));
    frame.bytes = in.OneIn(8) ? in.Raw<uint64_t>() : content.size();
    return std::string(reinterpret_cast<const char*>(&frame), sizeof(frame)) + content;
  }

  void SendRaw(int other, const std::string& bytes) {
    if (others_[other] < 0) return;
    [[maybe_unused]] const ssize_t sent =
        send(others_[other], bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  void Disconnect(FuzzInput& in, int other) {
    if (!in.OneIn(4) || others_[other] < 0) return;
    close(others_[other]);
    others_[other] = -1;
  }

  void Exchange(FuzzInput& in) {
    CollectiveOp op;
    op.kind = static_cast<CollectiveKind>(in.Range(0, 4));
    const auto words = mesh_.Exchange(EncodeIntent(in.Byte(), op, absl::OkStatus()));
    CheckStatus(words.status());
    if (!words.ok()) return;
    if (words->size() != kMembers) std::abort();
    for (const std::string& word : *words) {
      if (word.size() > PeerMesh::kMaxWordBytes) std::abort();
    }
    CompareIntents(*words).IgnoreError();
  }

  void Receive(FuzzInput& in, int other) {
    std::vector<char>& memory = memory_.emplace_back(in.Range(1, 24));
    int& done = counters_.emplace_back(0);
    mesh_.Receive(other, in.Range(0, 2), memory.data(), memory.size(), &done);
    CheckStatus(mesh_.Await(&done));
  }

  void Send(FuzzInput& in, int other) {
    const std::vector<char>& memory = memory_.emplace_back(in.Range(1, 24), 's');
    int& done = counters_.emplace_back(0);
    mesh_.Send(other, in.Range(0, 2), memory.data(), memory.size(), &done);
    CheckStatus(mesh_.Await(&done));
  }

  // Aborts if an earlier operation failed and this status isn't the same error.
  void CheckStatus(const absl::Status& status) {
    if (!failed_.ok() && status != failed_) std::abort();
    failed_ = status;
  }

  // The buffers of all operations. They have the exact sizes and live until the member has left.
  std::deque<std::vector<char>> memory_;
  std::deque<int> counters_;
  int others_[kMembers] = {-1, -1, -1};
  PeerMesh mesh_;
  absl::Status failed_;
};

}  // namespace
}  // namespace tensord::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tensord::fuzz::FuzzInput in(data, size);
  tensord::server::Member member;
  for (int steps = 0; steps < 64 && in.remaining() > 0; ++steps) member.Step(in);
  return 0;
}
