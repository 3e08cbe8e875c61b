// The limits of the wire: sockets alone, and gRPC with nothing behind it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tensord/tests/bench/peer.h"

namespace tensord::bench {

// Every message to and from the raw echo server. The first bytes of a question are a RawHeader.
inline constexpr int64_t kRawMessageBytes = 256;
struct RawHeader {
  // 'p': answer at once. 'u': `bytes` follow, answer when they are here. 'd': answer with `bytes`.
  char kind;
  int64_t bytes;
};

// A blocking connection to the raw echo server, by TCP or a Unix socket.
class RawConnection {
 public:
  // "127.0.0.1:41234" or "unix:/path".
  explicit RawConnection(const std::string& address);
  ~RawConnection();
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  // Microseconds of each of `n` round trips.
  std::vector<double> PingPong(int n);
  // GiB/s.
  double Upload(absl::Span<const uint8_t> data);
  double Download(absl::Span<uint8_t> data);

 private:
  void Send(const void* data, int64_t size);
  void Receive(void* data, int64_t size);
  void Ask(char kind, int64_t bytes);
  void AwaitAnswer();

  int fd_ = -1;
};

// The same questions to a gRPC service that sends every message back as it is.
class GrpcEcho {
 public:
  explicit GrpcEcho(const std::string& address);
  ~GrpcEcho();

  // Microseconds of each of `n` blocking unary calls.
  std::vector<double> Unary(int n);
  // Microseconds from each of `n` messages on one open stream to its answer.
  std::vector<double> Stream(int n);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// Where the echo server listens.
inline const std::string& RawTcpAddress(const Peer& echo) { return echo.greeting().at(0); }
inline const std::string& RawUnixAddress(const Peer& echo) { return echo.greeting().at(1); }
inline const std::string& GrpcAddress(const Peer& echo) { return echo.greeting().at(2); }

}  // namespace tensord::bench
