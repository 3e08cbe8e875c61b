// A TCP proxy that delays, throttles, holds, discards and cuts connections.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace tensord::proxy {

enum class Direction { kToServer, kToClient };

struct DelayProxyOptions {
  std::string listen = "127.0.0.1:0";  // IPv4; port 0 takes a free one
  std::string target;                  // "127.0.0.1:41234"
  std::chrono::microseconds one_way_delay{0};
  int64_t bytes_per_second = 0;  // of each connection in each direction; 0: no limit
  // The maximum number of buffered bytes, of each connection in each direction.
  int64_t max_buffered_bytes = 16 * 1024 * 1024;
};

// A position in the bytes of a gRPC call.
struct CallPosition {
  std::string method;  // "/tensord.v1.TensorService/Read"
  Direction direction = Direction::kToServer;
  // The position follows `messages` complete messages of this direction and then `bytes` bytes of
  // HTTP/2 frames. 0 and 0 is before the call's first byte in this direction, 1 and 0 is right
  // after the first message. The position is exact, unless a frame's head arrives in two reads.
  int64_t messages = 0;
  int64_t bytes = 0;
  // If true, `messages` and `bytes` are ignored, and the position is before the frame that ends the
  // call in this direction.
  bool at_end = false;
};

// A fault at a position. Bytes before the position arrive, and bytes after it don't.
struct CallFault {
  CallPosition position;
  // If true, resets the connection. If false, leaves it half-open, so that no further bytes of
  // either end arrive.
  bool cut = true;
  // If true, does this to all existing connections, and not only to the call's.
  bool all = false;
};

struct ProxyStats {
  int64_t accepted = 0;         // connections since the start
  int64_t connections = 0;      // open connections
  int64_t bytes_to_server = 0;  // received from clients
  int64_t bytes_to_client = 0;  // sent to clients
  // Bytes that the proxy holds, because they are delayed or held.
  int64_t pending_to_server_bytes = 0;
  int64_t pending_to_client_bytes = 0;
  // How often a client received a message from the server after it had sent a message. Several
  // messages in a row count once. Frames of the transport don't count (frame_scanner.h). If a
  // program only sends requests and waits for each response, this is the number of its requests.
  int64_t round_trips = 0;
  // The number of reads that contained part of a client's message.
  int64_t client_bursts = 0;
  int64_t faults_injected = 0;
};

// Runs on its own thread. Thread-safe. A setting applies to all existing and new connections, and
// has taken effect when the call returns.
class DelayProxy {
 public:
  static absl::StatusOr<std::unique_ptr<DelayProxy>> Start(const DelayProxyOptions& options);
  // Closes all connections.
  ~DelayProxy();

  // Returns the address for clients, such as "127.0.0.1:41235".
  const std::string& address() const { return address_; }

  // These apply to bytes that arrive from now on.
  void SetDelay(std::chrono::microseconds one_way);
  void SetDelay(Direction direction, std::chrono::microseconds one_way);
  void SetBandwidth(int64_t bytes_per_second);

  // While `held` is true, keeps all bytes of this direction in the proxy.
  void SetHeld(Direction direction, bool held);
  // While `discarding` is true, discards the bytes that arrive, as a half-open connection does.
  void SetDiscarding(Direction direction, bool discarding);
  // While `accepting` is false, new connections wait in the listener's queue.
  void SetAccepting(bool accepting);
  // Resets this number of new connections as soon as they are accepted.
  void SetResets(int connections);
  // Acts once, on the first call of the fault's method in any connection. Ignores calls that have
  // already begun. Replaces the previous fault.
  void SetCallFault(const CallFault& call_fault);
  void ClearCallFault();
  // Resets all connections.
  void CutAll();

  ProxyStats stats() const;
  // Blocks until the condition holds. Returns false after `timeout`.
  bool Await(const std::function<bool(const ProxyStats&)>& condition,
             std::chrono::milliseconds timeout = std::chrono::minutes(1)) const;

 private:
  class Loop;
  DelayProxy(std::string address, std::unique_ptr<Loop> loop);

  const std::string address_;
  const std::unique_ptr<Loop> loop_;
};

}  // namespace tensord::proxy
