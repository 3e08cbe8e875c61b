#include "tensord/tests/cuda_emulation/nccl/frame_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tensord::nccl_emulation {
namespace {

constexpr size_t kReadBytes = 256 << 10;

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK; }

}  // namespace

FrameSocket::FrameSocket(int fd) : fd_(fd) {
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

FrameSocket::~FrameSocket() { close(fd_); }

short FrameSocket::events() const {
  return static_cast<short>(output_.empty() ? POLLIN : POLLIN | POLLOUT);
}

void FrameSocket::Queue(FrameKind kind, absl::string_view payload) {
  output_ += Pack(Head{kind, payload.size()}, payload);
}

bool FrameSocket::Write() {
  size_t sent = 0;
  while (sent < output_.size()) {
    const ssize_t count = send(fd_, output_.data() + sent, output_.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && WouldBlock()) break;
    if (count < 0) return false;
    sent += static_cast<size_t>(count);
  }
  output_.erase(0, sent);
  return true;
}

bool FrameSocket::Read(std::vector<Frame>* frames) {
  bool connected = true;
  while (connected) {
    const size_t before = input_.size();
    input_.resize(before + kReadBytes);
    const ssize_t count = recv(fd_, input_.data() + before, kReadBytes, 0);
    const int error = errno;
    input_.resize(before + static_cast<size_t>(count > 0 ? count : 0));
    errno = error;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && WouldBlock()) break;
    connected = count > 0;
  }
  return TakeFrames(frames) && connected;
}

bool FrameSocket::TakeFrames(std::vector<Frame>* frames) {
  absl::string_view left = input_;
  Head head;
  absl::string_view rest;
  while (Unpack(left, &head, &rest)) {
    if (head.kind < FrameKind::kJoin || head.kind > FrameKind::kError) return false;
    if (head.payload_bytes > kMaxPayloadBytes) return false;
    if (rest.size() < head.payload_bytes) break;
    frames->push_back({head.kind, std::string(rest.substr(0, head.payload_bytes))});
    left = rest.substr(head.payload_bytes);
  }
  input_.erase(0, input_.size() - left.size());
  return true;
}

}  // namespace tensord::nccl_emulation
