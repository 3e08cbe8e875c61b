// A TCP proxy that makes a network worse: slower, narrower, broken.
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
  // What may be under way, of each connection in each direction.
  int64_t max_buffered_bytes = 16 * 1024 * 1024;
};

// A place in a gRPC call as it passes by.
struct CallSpot {
  std::string method;  // "/tensord.v1.TensorService/Read"
  Direction direction = Direction::kToServer;
  // After so many whole messages in this direction, and so many bytes of HTTP/2 frames more: 0 and
  // 0 is before the call's first byte in this direction, 1 and 0 right after the first message.
  // Exact but where a frame's head comes in two pieces.
  int64_t messages = 0;
  int64_t bytes = 0;
  // Instead: before the frame that ends the call in this direction.
  bool at_end = false;
};

// What happens there. What passed before it still arrives, and nothing after it.
struct Trap {
  CallSpot spot;
  // Connections are reset; without it they are left half open: nothing that either end says
  // arrives.
  bool cut = true;
  // It happens to every connection there is, and not to the call's alone.
  bool all = false;
};

struct ProxyStats {
  int64_t accepted = 0;         // connections so far
  int64_t connections = 0;      // now
  int64_t bytes_to_server = 0;  // got from clients
  int64_t bytes_to_client = 0;  // handed to clients
  // Waiting here, for their time or because they are held.
  int64_t pending_to_server_bytes = 0;
  int64_t pending_to_client_bytes = 0;
  // Times that clients got in a message from the server after they had sent one of their own. What
  // the transport says by itself counts on neither side (frame_scanner.h), and of several messages
  // in a row the first alone does: where a program does nothing but ask and wait for the answer,
  // these are its questions.
  int64_t turns = 0;
  // Reads that held some of a client's messages.
  int64_t client_bursts = 0;
  int64_t traps_sprung = 0;
};

// Runs on a thread of its own. Thread-safe; what is set holds for all connections, those that are
// there and those to come, and has taken effect when the call returns.
class DelayProxy {
 public:
  static absl::StatusOr<std::unique_ptr<DelayProxy>> Start(const DelayProxyOptions& options);
  // Ends all connections.
  ~DelayProxy();

  // Where to connect to: "127.0.0.1:41235".
  const std::string& address() const { return address_; }

  // Holds for what comes in from now on.
  void SetDelay(std::chrono::microseconds one_way);
  void SetDelay(Direction direction, std::chrono::microseconds one_way);
  void SetBandwidth(int64_t bytes_per_second);

  // Keeps what goes in this direction, and whatever comes, until told otherwise.
  void SetHeld(Direction direction, bool held);
  // Throws away what comes in from now on, as a half-open connection does.
  void SetSwallowed(Direction direction, bool swallowed);
  // Connections that aren't accepted wait, unanswered.
  void SetAccepting(bool accepting);
  // Resets as many of the connections to come as soon as they are there.
  void SetResets(int connections);
  // Waits for the first call of this method that a connection carries, and does this to it, once.
  // It takes the place of a trap that waits. Calls that have begun aren't looked at.
  void SetTrap(const Trap& trap);
  void ClearTrap();
  // Resets every connection.
  void CutAll();

  ProxyStats stats() const;
  // Waits until the figures are so. False where they aren't after `timeout`.
  bool Await(const std::function<bool(const ProxyStats&)>& condition,
             std::chrono::milliseconds timeout = std::chrono::seconds(30)) const;

 private:
  class Loop;
  DelayProxy(std::string address, std::unique_ptr<Loop> loop);

  const std::string address_;
  const std::unique_ptr<Loop> loop_;
};

}  // namespace tensord::proxy
