#include "tensord/tests/attack/raw_http2.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace tensord::attack {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSendTimeoutMs = 3000;
constexpr size_t kMaxFrameBytes = 16384;  // HTTP/2's default limit

constexpr size_t kFrameHeaderBytes = 9;

void AppendBigEndian(uint64_t value, int bytes, std::string* out) {
  for (int i = bytes - 1; i >= 0; --i) out->push_back(static_cast<char>(value >> (8 * i)));
}

// Appends an HPACK integer with a 7-bit prefix (RFC 7541, 5.1).
void AppendLength(size_t length, std::string* out) {
  constexpr size_t kPrefix = 127;
  if (length < kPrefix) {
    out->push_back(static_cast<char>(length));
    return;
  }
  out->push_back(static_cast<char>(kPrefix));
  for (length -= kPrefix; length >= 128; length /= 128) {
    out->push_back(static_cast<char>(length % 128 + 128));
  }
  out->push_back(static_cast<char>(length));
}

// Appends a literal header without indexing (RFC 7541, 6.2.2), without Huffman coding.
void AppendHeader(const std::string& name, const std::string& value, std::string* out) {
  out->push_back(0);
  AppendLength(name.size(), out);
  out->append(name);
  AppendLength(value.size(), out);
  out->append(value);
}

}  // namespace

RawHttp2::RawHttp2(const std::string& address, uint16_t local_port) {
  const size_t colon = address.rfind(':');
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  sockaddr_in from = {};
  from.sin_family = AF_INET;
  from.sin_port = htons(local_port);
  // Lets connections to several addresses share a local port.
  setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool bound =
      local_port == 0 || bind(fd_, reinterpret_cast<sockaddr*>(&from), sizeof(from)) == 0;
  if (!bound || connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
    close(fd_);
    fd_ = -1;
  }
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

uint16_t RawHttp2::local_port() const {
  sockaddr_in at = {};
  socklen_t size = sizeof(at);
  getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size);
  return ntohs(at.sin_port);
}

RawHttp2::~RawHttp2() {
  if (fd_ >= 0) close(fd_);
}

bool RawHttp2::Send(const std::string& bytes) {
  size_t sent = 0;
  while (fd_ >= 0 && sent < bytes.size()) {
    // Also receives: otherwise a server that waits for this end to read would block the send.
    pollfd ready = {fd_, POLLOUT | POLLIN, 0};
    if (poll(&ready, 1, kSendTimeoutMs) <= 0) return false;
    if ((ready.revents & POLLIN) != 0 && !Receive(std::chrono::milliseconds(0))) return false;
    const ssize_t n =
        send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) return false;
    if (n > 0) sent += static_cast<size_t>(n);
  }
  return fd_ >= 0;
}

bool RawHttp2::SendPreface() {
  return Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") && SendFrame(kSettings, 0, 0, "");
}

bool RawHttp2::SendFrame(Frame type, uint8_t flags, uint32_t stream, const std::string& payload) {
  std::string frame;
  AppendBigEndian(payload.size(), 3, &frame);
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  AppendBigEndian(stream, 4, &frame);
  return Send(frame + payload);
}

bool RawHttp2::BeginCall(uint32_t stream, const std::string& method,
                         const std::vector<std::pair<std::string, std::string>>& more) {
  std::string block;
  AppendHeader(":method", "POST", &block);
  AppendHeader(":scheme", "http", &block);
  const bool is_path = method.front() == '/';
  AppendHeader(":path", is_path ? method : "/tensord.v1.TensorService/" + method, &block);
  AppendHeader(":authority", "attack", &block);
  AppendHeader("te", "trailers", &block);
  AppendHeader("content-type", "application/grpc", &block);
  for (const auto& [name, value] : more) AppendHeader(name, value, &block);
  for (size_t at = 0; at < block.size(); at += kMaxFrameBytes) {
    const std::string part = block.substr(at, kMaxFrameBytes);
    const uint8_t flags = at + part.size() == block.size() ? kEndHeaders : 0;
    if (!SendFrame(at == 0 ? kHeaders : kContinuation, flags, stream, part)) return false;
  }
  return true;
}

bool RawHttp2::Call(uint32_t stream, const std::string& method) {
  if (!BeginCall(stream, method) || !SendFrame(kData, kEndStream, stream, GrpcMessage(""))) {
    return false;
  }
  std::string received;
  const auto deadline = Clock::now() + std::chrono::seconds(30);
  while (Clock::now() < deadline) {
    while (received.size() >= kFrameHeaderBytes) {
      const auto at = [&received](size_t i) { return static_cast<uint8_t>(received[i]); };
      const size_t length = at(0) << 16 | at(1) << 8 | at(2);
      if (received.size() < kFrameHeaderBytes + length) break;
      const bool ends = at(3) == kHeaders && (at(4) & kEndStream) != 0;
      received.erase(0, kFrameHeaderBytes + length);
      if (ends) return true;
    }
    if (!Receive(std::chrono::milliseconds(50), &received)) return false;
  }
  return false;
}

bool RawHttp2::Receive(std::chrono::milliseconds timeout, std::string* received) {
  pollfd ready = {fd_, POLLIN, 0};
  if (poll(&ready, 1, static_cast<int>(timeout.count())) <= 0) return true;
  char bytes[65536];
  const ssize_t n = recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT);
  if (n > 0 && received != nullptr) received->append(bytes, static_cast<size_t>(n));
  return n > 0 || (n < 0 && errno == EAGAIN);
}

bool RawHttp2::AwaitClosed(std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (Clock::now() < deadline) {
    if (!Receive(std::chrono::milliseconds(50))) return true;
  }
  return false;
}

std::string GrpcMessage(const std::string& bytes, bool compressed) {
  std::string message(1, compressed ? 1 : 0);
  AppendBigEndian(bytes.size(), 4, &message);
  return message + bytes;
}

}  // namespace tensord::attack
