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

constexpr size_t kFrameHeaderBytes = 9;
// The first bytes of literal headers with a new name (RFC 7541, 6.2).
constexpr char kWithoutIndexing = 0;
constexpr char kWithIndexing = 0x40;

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

// Appends a literal header.
void AppendHeader(char kind, const std::string& name, const std::string& value, std::string* out) {
  out->push_back(kind);
  AppendLength(name.size(), out);
  out->append(name);
  AppendLength(value.size(), out);
  out->append(value);
}

}  // namespace

Headers CallHeaders(const std::string& method) {
  const bool is_path = method.front() == '/';
  return {{":method", "POST"},
          {":scheme", "http"},
          {":path", is_path ? method : "/tensord.v1.TensorService/" + method},
          {":authority", "attack"},
          {"te", "trailers"},
          {"content-type", "application/grpc"}};
}

std::string HeaderBlock(const Headers& headers) {
  std::string block;
  for (const auto& [name, value] : headers) AppendHeader(kWithoutIndexing, name, value, &block);
  return block;
}

std::string IndexedHeader(const std::string& name, const std::string& value) {
  std::string header;
  AppendHeader(kWithIndexing, name, value, &header);
  return header;
}

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
    // Also waits for bytes to receive: otherwise a server that waits for this end to read would
    // block the send.
    pollfd ready = {fd_, POLLOUT | POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(send_timeout_.count())) <= 0) return false;
    if ((ready.revents & POLLIN) != 0 && !Receive(std::chrono::milliseconds(0))) return false;
    const ssize_t n =
        send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) return false;
    if (n > 0) sent += static_cast<size_t>(n);
  }
  return fd_ >= 0;
}

bool RawHttp2::SendPreface() {
  return Send(std::string(kPreface)) && SendFrame(kSettings, 0, 0, "");
}

bool RawHttp2::SendFrame(FrameType type, uint8_t flags, uint32_t stream,
                         const std::string& payload) {
  std::string frame;
  AppendBigEndian(payload.size(), 3, &frame);
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  AppendBigEndian(stream, 4, &frame);
  return Send(frame + payload);
}

bool RawHttp2::SendHeaders(uint32_t stream, const std::string& block, size_t max_frame_bytes) {
  for (size_t at = 0; at < block.size(); at += max_frame_bytes) {
    const std::string part = block.substr(at, max_frame_bytes);
    const uint8_t flags = at + part.size() == block.size() ? kEndHeaders : 0;
    if (!SendFrame(at == 0 ? kHeaders : kContinuation, flags, stream, part)) return false;
  }
  return true;
}

bool RawHttp2::BeginCall(uint32_t stream, const std::string& method, const Headers& more) {
  return SendHeaders(stream, HeaderBlock(CallHeaders(method)) + HeaderBlock(more));
}

RawHttp2::CallEnd RawHttp2::AwaitEnd(uint32_t stream) {
  const auto deadline = Clock::now() + std::chrono::seconds(30);
  while (true) {
    const auto end = ends_.find(stream);
    if (end != ends_.end()) return end->second;
    if (Clock::now() > deadline || !Receive(std::chrono::milliseconds(50))) return CallEnd::kNone;
  }
}

bool RawHttp2::Call(uint32_t stream, const std::string& method, const Headers& more) {
  return BeginCall(stream, method, more) && SendFrame(kData, kEndStream, stream, GrpcMessage("")) &&
         AwaitEnd(stream) == CallEnd::kResponse;
}

void RawHttp2::Abort() {
  const linger reset = {.l_onoff = 1, .l_linger = 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  close(fd_);
  fd_ = -1;
}

bool RawHttp2::Receive(std::chrono::milliseconds timeout) {
  pollfd ready = {fd_, POLLIN, 0};
  if (poll(&ready, 1, static_cast<int>(timeout.count())) <= 0) return true;
  char bytes[65536];
  const ssize_t n = recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT);
  if (n > 0) {
    received_.append(bytes, static_cast<size_t>(n));
    HandleFrames();
  }
  return n > 0 || (n < 0 && errno == EAGAIN);
}

void RawHttp2::HandleFrames() {
  size_t begin = 0;
  while (received_.size() - begin >= kFrameHeaderBytes) {
    const auto at = [&](size_t i) {
      return static_cast<uint32_t>(static_cast<uint8_t>(received_[begin + i]));
    };
    const size_t length = at(0) << 16 | at(1) << 8 | at(2);
    if (received_.size() - begin < kFrameHeaderBytes + length) break;
    const uint32_t stream = at(5) << 24 | at(6) << 16 | at(7) << 8 | at(8);
    if (at(3) == kData) has_response_.insert(stream);
    const bool ends = at(3) == kHeaders && (at(4) & kEndStream) != 0;
    if (ends || at(3) == kRstStream) {
      const bool has_response = has_response_.erase(stream) > 0;
      ends_.emplace(stream, ends && has_response ? CallEnd::kResponse : CallEnd::kError);
    }
    begin += kFrameHeaderBytes + length;
  }
  received_.erase(0, begin);
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
