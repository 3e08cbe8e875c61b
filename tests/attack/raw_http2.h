// A hand-written HTTP/2 client (RFC 9113), for tests that break the protocol or flood the server.
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
  kContinuation = 9,
};
inline constexpr uint8_t kEndStream = 1;
inline constexpr uint8_t kEndHeaders = 4;

// An HTTP/2 connection. The destructor closes it. Not thread-safe.
class RawHttp2 {
 public:
  // Connects to an address such as "127.0.0.1:41234". If `local_port` isn't 0, connects from it. If
  // this fails, connected() is false.
  explicit RawHttp2(const std::string& address, uint16_t local_port = 0);
  ~RawHttp2();
  RawHttp2(const RawHttp2&) = delete;
  RawHttp2& operator=(const RawHttp2&) = delete;

  bool connected() const { return fd_ >= 0; }
  uint16_t local_port() const;

  // The functions that send return false if the server has closed the connection, or if the server
  // doesn't read for 3 seconds.
  bool Send(const std::string& bytes);
  // Sends the connection preface and empty settings.
  bool SendPreface();
  bool SendFrame(Frame type, uint8_t flags, uint32_t stream, const std::string& payload);
  // Begins a gRPC call: sends the required headers and `more`, in one HEADERS frame and, if needed,
  // CONTINUATION frames. `method`: a method of TensorService, or a path such as
  // "/package.Service/Method".
  bool BeginCall(uint32_t stream, const std::string& method,
                 const std::vector<std::pair<std::string, std::string>>& more = {});

  // Makes a call with an empty request, and receives frames until the call has ended. Returns false
  // if the server closes the connection or the call doesn't end within 30 seconds.
  bool Call(uint32_t stream, const std::string& method);

  // Receives and discards bytes until the server closes the connection. Returns false on timeout.
  bool AwaitClosed(std::chrono::milliseconds timeout);

 private:
  // Waits at most this long for bytes. Appends them to `received`, or discards them if it is null.
  // Returns false if the connection is closed.
  bool Receive(std::chrono::milliseconds timeout, std::string* received = nullptr);

  int fd_ = -1;
};

// Returns a gRPC message: the prefix of five bytes, and `bytes`.
std::string GrpcMessage(const std::string& bytes, bool compressed = false);

}  // namespace tensord::attack
