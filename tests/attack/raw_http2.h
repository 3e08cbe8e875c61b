// A hand-written HTTP/2 client (RFC 9113), for tests that break the protocol or flood the server.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tensord/tests/http2_frame.h"

namespace tensord::attack {

// The payload of kSettings that sets SETTINGS_INITIAL_WINDOW_SIZE to 0. The server may then send no
// byte of a response.
inline const std::string kNoResponses("\0\4\0\0\0\0", 6);
// The method of a health check.
inline constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";

using Headers = std::vector<std::pair<std::string, std::string>>;

// Returns the headers that a gRPC call requires. `method` is a method of TensorService, or a path
// such as "/package.Service/Method".
Headers CallHeaders(const std::string& method);

// Encodes headers in HPACK (RFC 7541), without Huffman coding. Returns literal headers without
// indexing.
std::string HeaderBlock(const Headers& headers);
// Returns a literal header that becomes the newest entry of the dynamic table.
std::string IndexedHeader(const std::string& name, const std::string& value);
// The newest and the second newest entry of the dynamic table, in one byte.
inline constexpr char kNewestEntry = '\xbe';
inline constexpr char kSecondNewestEntry = '\xbf';

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

  // The functions that send return false if the server has closed the connection, or if it reads
  // nothing until the send timeout. The default is 3 seconds.
  void set_send_timeout(std::chrono::milliseconds timeout) { send_timeout_ = timeout; }
  bool Send(const std::string& bytes);
  // Sends the connection preface and empty settings.
  bool SendPreface();
  bool SendFrame(FrameType type, uint8_t flags, uint32_t stream, const std::string& payload);
  // Sends a header block in one HEADERS frame and, if needed, CONTINUATION frames. No frame has
  // more than `max_frame_bytes`.
  bool SendHeaders(uint32_t stream, const std::string& block, size_t max_frame_bytes = 16384);
  // Begins a gRPC call: sends CallHeaders() and `more`.
  bool BeginCall(uint32_t stream, const std::string& method, const Headers& more = {});

  // How a call ended. kResponse means that it ended with a response. kError means that it ended
  // without one, or that the server has reset it. kNone means that the server has closed the
  // connection, or that the call hasn't ended within 30 seconds.
  enum class CallEnd { kResponse, kError, kNone };
  // Receives frames until a call has ended.
  CallEnd AwaitEnd(uint32_t stream);
  // Makes a call with an empty request, and receives frames until the call has ended. Returns
  // whether it ended with a response.
  bool Call(uint32_t stream, const std::string& method, const Headers& more = {});

  // Closes the connection with a TCP reset.
  void Abort();

  // Receives and discards bytes until the server closes the connection. Returns false on timeout.
  bool AwaitClosed(std::chrono::milliseconds timeout);

 private:
  // Waits at most this long for bytes, and handles the frames in them. Returns false if the
  // connection is closed.
  bool Receive(std::chrono::milliseconds timeout);
  void HandleFrames();

  int fd_ = -1;
  std::chrono::milliseconds send_timeout_{3000};
  std::string received_;             // an incomplete frame
  std::set<uint32_t> has_response_;  // streams of open calls that have received a response
  std::map<uint32_t, CallEnd> ends_;
};

// Returns a gRPC message: the prefix of five bytes, and `bytes`.
std::string GrpcMessage(const std::string& bytes, bool compressed = false);

}  // namespace tensord::attack
