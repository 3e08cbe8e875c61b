// One client's connection through the proxy, and the one to the server behind it.
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

// Counts turns over all connections.
class Tally {
 public:
  void FromClient(int64_t bytes, bool message);
  void ToClient(int64_t bytes, bool message);
  // Of `stats`, the fields that are counted here.
  void Report(ProxyStats* stats) const;

 private:
  int64_t bytes_to_server_ = 0;
  int64_t bytes_to_client_ = 0;
  int64_t turns_ = 0;
  int64_t client_bursts_ = 0;
  bool client_has_spoken_ = false;
};

// Owns both sockets, non-blocking. Used by the proxy's thread.
class Connection {
 public:
  Connection(int client_fd, int server_fd, const Treatment* to_server, const Treatment* to_client,
             int64_t max_buffered_bytes, Tally* tally);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int client_fd() const { return client_fd_; }
  int server_fd() const { return server_fd_; }

  // epoll has something to say about one of the sockets.
  void Notice(int fd, bool readable, bool writable);

  // Moves what can be moved. False where it is over, one way or another.
  bool Pump(Clock::time_point now);
  // Pump stopped to give others a turn.
  bool has_more() const { return has_more_; }
  std::optional<Clock::time_point> NextDue() const;
  int64_t pending_bytes(Direction direction) const;

  // Waits for the trap's place, or for none.
  void SetTrap(const std::optional<Trap>& trap);
  // It has come by, and this connection has been treated so.
  bool trap_sprung() const { return trap_sprung_; }
  // From now on nothing that is said arrives.
  void Sever();

  // From now on a close is a reset.
  void Abort();

 private:
  enum class Outcome { kIdle, kProgress, kBroken };
  Outcome PumpOnce(Clock::time_point now);
  void Watch(Direction direction, absl::string_view bytes);

  const int client_fd_;
  const int server_fd_;
  Tally* const tally_;
  Pipe to_server_;
  Pipe to_client_;
  FrameScanner from_client_{FrameScanner::From::kClient};
  FrameScanner from_server_{FrameScanner::From::kServer};
  CallWatch watch_;
  bool trap_cuts_ = false;
  bool trap_sprung_ = false;
  bool has_more_ = false;
};

}  // namespace tensord::proxy
