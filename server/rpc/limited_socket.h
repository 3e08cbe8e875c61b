// A bound on how many bytes gRPC reads from a TCP connection.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"

namespace tensord::server {

// Counts the bytes that several sockets have received together. While the pool is full, its sockets
// receive nothing.
struct ReceivePool {
  int64_t capacity_bytes = 0;
  // An eventfd(2) that is signalled when a socket has to wait because the pool is full.
  int full_event_fd = -1;
  std::atomic<int64_t> used_bytes = 0;
};

// Holds back what a peer sends before the server has authenticated the peer.
//
// gRPC keeps whatever it reads from a connection, before any handler runs, and it has no limit of
// its own on that. A socket option can't set one either: SO_RCVBUF bounds what waits in the kernel,
// not what is read in total. gRPC reads connections by recvmsg(2). This class therefore replaces
// recvmsg for the whole program (a program's own symbol takes precedence, ld.so(8)). For a socket
// with a limit it reads up to the limit and then returns EAGAIN, as if nothing had arrived. TCP's
// flow control then stops the peer, and no byte is lost. When the limit rises, setting SO_RCVLOWAT
// makes the kernel report the waiting bytes again (tcp_set_rcvlowat(), Linux 4.18).
//
// If a socket has no limit, recvmsg costs two atomic loads more than the system call. Thread-safe.
class LimitedSocket {
 public:
  static constexpr int64_t kUnlimited = -1;

  // Tries a limit on a connection over loopback. Returns UNAVAILABLE with the reason if this system
  // doesn't enforce it, or if a reader isn't woken when the limit rises.
  static absl::Status CheckSupport();

  // Limits the socket that `fd` refers to. Call it before gRPC gets `fd`. gRPC owns `fd` and may
  // close it at any time; this object holds a descriptor of its own. `pool` outlives every read of
  // the socket. Returns null if the process has no descriptor left, if `fd` is 2^20 or higher, or
  // if the system gives sockets no cookies.
  static std::unique_ptr<LimitedSocket> Make(int fd, int64_t limit_bytes, ReceivePool* pool);
  // Removes the limit.
  ~LimitedSocket();
  LimitedSocket(const LimitedSocket&) = delete;
  LimitedSocket& operator=(const LimitedSocket&) = delete;

  // This object's own descriptor of the socket.
  int fd() const { return own_fd_; }
  // Bytes that gRPC has read so far. They are counted only while there is a limit.
  int64_t received_bytes() const;
  // Bounds received_bytes() from now on. If the old bound made a read wait, the kernel reports the
  // socket as readable again.
  void SetLimit(int64_t limit_bytes);
  // The socket's share of the pool.
  int64_t pool_bytes() const;
  // Subtracts that share from the pool. What the socket receives next counts again.
  void ReturnPoolBytes();
  // Removes the socket and its bytes from the pool for good.
  void LeavePool();
  // Closes the connection with a TCP reset. gRPC sees its end.
  void Reset();

 private:
  struct Slot;
  friend struct ReceiveHook;

  LimitedSocket(int reader_fd, int own_fd, uint64_t cookie)
      : reader_fd_(reader_fd), own_fd_(own_fd), cookie_(cookie) {}

  // Returns the state of the descriptor number `fd`. Returns null if its page isn't allocated.
  static Slot* Find(int fd);

  const int reader_fd_;  // gRPC's descriptor
  const int own_fd_;
  const uint64_t cookie_;  // SO_COOKIE: identifies the socket after gRPC has closed reader_fd_
};

}  // namespace tensord::server
