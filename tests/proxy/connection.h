// A client's connection to the proxy, and the proxy's connection to the server for this client.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "tensord/tests/proxy/call_watch.h"
#include "tensord/tests/proxy/delay_proxy.h"
#include "tensord/tests/proxy/frame_scanner.h"
#include "tensord/tests/proxy/pipe.h"

namespace tensord::proxy {

// Counts bytes, round trips and bursts of all connections (ProxyStats). Not thread-safe.
class TrafficCounter {
 public:
  // `message` says whether the bytes contain part of a message.
  void FromClient(int64_t bytes, bool message);
  void ToClient(int64_t bytes, bool message);
  // Sets the fields that this class counts.
  void Report(ProxyStats* stats) const;

 private:
  int64_t bytes_to_server_ = 0;
  int64_t bytes_to_client_ = 0;
  int64_t round_trips_ = 0;
  int64_t client_bursts_ = 0;
  bool client_has_spoken_ = false;
};

// Owns both sockets, which must be non-blocking. Only the proxy's thread uses it.
class Connection {
 public:
  Connection(int client_fd, int server_fd, const DirectionSettings* to_server,
             const DirectionSettings* to_client, int64_t max_buffered_bytes,
             TrafficCounter* counter);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int client_fd() const { return client_fd_; }
  int server_fd() const { return server_fd_; }

  // Handles an event that epoll reported for one of the sockets.
  void Notice(int fd, bool readable, bool writable);

  // Moves bytes in both directions. Returns false if the connection has ended or failed.
  bool Pump(Clock::time_point now);
  // Returns whether Pump() stopped early, so that other connections are served, too.
  bool has_more() const { return has_more_; }
  // Returns when Pump() must run next, if this depends on time only.
  std::optional<Clock::time_point> NextDue() const;
  int64_t pending_bytes(Direction direction) const;

  // Waits for the fault's position, or for none.
  void SetCallFault(const std::optional<CallFault>& call_fault);
  // Returns whether the fault has acted on this connection.
  bool fault_injected() const { return fault_injected_; }
  // Discards all bytes that either end sends from now on.
  void DiscardRest();

  // Makes the destructor reset both sockets.
  void Abort();

 private:
  enum class Outcome { kIdle, kProgress, kBroken };
  Outcome PumpOnce(Clock::time_point now);
  void Watch(Direction direction, absl::string_view bytes);

  const int client_fd_;
  const int server_fd_;
  TrafficCounter* const counter_;
  Pipe to_server_;
  Pipe to_client_;
  FrameScanner from_client_{FrameScanner::From::kClient};
  FrameScanner from_server_{FrameScanner::From::kServer};
  CallWatch watch_;
  bool fault_resets_ = false;
  bool fault_injected_ = false;
  bool has_more_ = false;
};

}  // namespace tensord::proxy
