// Reference measurements of the transport: plain sockets, and gRPC with an empty service.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tensord/tests/bench/peer.h"

namespace tensord::bench {

// The size of a message to and from the raw echo server. A request begins with a RawHeader.
inline constexpr int64_t kRawMessageBytes = 256;
struct RawHeader {
  // 'p': the server answers at once. 'u': `bytes` bytes follow, and the server answers when it has
  // received them. 'd': the server answers with `bytes` bytes.
  char kind;
  int64_t bytes;
};

// A blocking connection to the raw echo server, by TCP or a Unix socket.
class RawConnection {
 public:
  // `address` is "127.0.0.1:41234" or "unix:/path". If a call of this class fails, the program
  // exits.
  explicit RawConnection(const std::string& address);
  ~RawConnection();
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  // Returns the microseconds of each of `n` round trips.
  std::vector<double> PingPong(int n);
  // Each returns GiB/s.
  double Upload(absl::Span<const uint8_t> data);
  double Download(absl::Span<uint8_t> data);

 private:
  void Send(const void* data, int64_t size);
  void Receive(void* data, int64_t size);
  void Ask(char kind, int64_t bytes);
  void AwaitAnswer();

  int fd_ = -1;
};

// A client of a gRPC service that sends every message back.
class GrpcEcho {
 public:
  // If `ca_file` isn't empty, the connection uses TLS. The file contains the certificate authority
  // of the server.
  explicit GrpcEcho(const std::string& address, const std::string& ca_file = "");
  ~GrpcEcho();

  // Returns the microseconds of each of `n` blocking unary calls.
  std::vector<double> Unary(int n);
  // Sends `n` messages on one open stream. Returns the microseconds from each to its answer.
  std::vector<double> Stream(int n);
  // Sends the bytes on a new stream, in messages of 1 MiB, without copying them. Returns GiB/s.
  double Upload(absl::Span<const uint8_t> data);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// Return the addresses of the echo server.
inline const std::string& RawTcpAddress(const Peer& echo) { return echo.greeting().at(0); }
inline const std::string& RawUnixAddress(const Peer& echo) { return echo.greeting().at(1); }
inline const std::string& GrpcAddress(const Peer& echo) { return echo.greeting().at(2); }
inline const std::string& GrpcTlsAddress(const Peer& echo) { return echo.greeting().at(3); }
// Returns the file with the certificate authority of GrpcTlsAddress().
inline const std::string& GrpcTlsAuthority(const Peer& echo) { return echo.greeting().at(4); }

}  // namespace tensord::bench
