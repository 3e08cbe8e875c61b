// HTTP/2 by hand (RFC 9113), for clients that no library would play: half-open, flooding, lying.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tensord::attack {

// Frame types and flags, as RFC 9113 numbers them.
enum Frame : uint8_t {
  kData = 0,
  kHeaders = 1,
  kRstStream = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kContinuation = 9,
};
inline constexpr uint8_t kEndStream = 1;
inline constexpr uint8_t kEndHeaders = 4;

// A TCP connection. Closed when it goes.
class RawHttp2 {
 public:
  // Connects to an address such as "127.0.0.1:41234", from this local port if it isn't 0.
  // connected() says whether that succeeded.
  explicit RawHttp2(const std::string& address, uint16_t local_port = 0);
  ~RawHttp2();
  RawHttp2(const RawHttp2&) = delete;
  RawHttp2& operator=(const RawHttp2&) = delete;

  bool connected() const { return fd_ >= 0; }
  uint16_t local_port() const;

  // All of these return false once the server has closed the connection. A send that the server
  // doesn't take in within some seconds counts as closed.
  bool Send(const std::string& bytes);
  // The connection preface and empty settings.
  bool SendPreface();
  bool SendFrame(Frame type, uint8_t flags, uint32_t stream, const std::string& payload);
  // Begins a gRPC call: sends the headers it must have, and `more`, in one HEADERS frame and as
  // many CONTINUATION frames as they take. `method`: a method of TensorService, or a path such as
  // "/package.Service/Method".
  bool BeginCall(uint32_t stream, const std::string& method,
                 const std::vector<std::pair<std::string, std::string>>& more = {});

  // Whether the server closes the connection, or has, within this time. Reads what comes.
  bool AwaitClosed(std::chrono::milliseconds timeout);
  // Whether a frame of this type comes within this time. Reads up to it.
  bool AwaitFrame(Frame type, std::chrono::milliseconds timeout);

 private:
  // Reads what is there, for at most this long; false where the connection is closed.
  bool Receive(std::chrono::milliseconds timeout);

  int fd_ = -1;
  std::string received_;
};

// A gRPC message: five bytes of prefix and the rest.
std::string GrpcMessage(const std::string& bytes, bool compressed = false);

}  // namespace tensord::attack
