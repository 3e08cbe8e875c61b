// A limit on how many bytes gRPC reads from a TCP connection.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"

namespace tensord::server {

// Counts the bytes that several sockets have received together. While the pool is full, its sockets
// receive nothing. Thread-safe after capacity_bytes and full_event_fd have been set.
struct ReceivePool {
  int64_t capacity_bytes = 0;
  // An eventfd(2), not owned. It is signalled when a socket can't receive because the pool is full.
  int full_event_fd = -1;
  std::atomic<int64_t> used_bytes = 0;
};

// Limits how many bytes gRPC reads from one TCP connection.
//
// gRPC stores whatever it reads from a connection before any handler runs, and has no option that
// limits this. SO_RCVBUF limits only the bytes that wait in the kernel, not the bytes read in
// total. gRPC reads connections with recvmsg(2), so limited_socket.cc replaces recvmsg for the
// whole program (a program's own symbol takes precedence, ld.so(8)). On a socket with a limit,
// recvmsg reads up to the limit and then returns EAGAIN, as if nothing had arrived. TCP's flow
// control then stops the peer, and no byte is lost. When the limit rises, setting SO_RCVLOWAT makes
// the kernel report the waiting bytes again (tcp_set_rcvlowat(), Linux 4.18).
//
// For a socket without a limit, recvmsg costs two atomic loads more than the system call.
// Thread-safe.
class LimitedSocket {
 public:
  static constexpr int64_t kUnlimited = -1;

  // Tests a limit on a loopback connection. Blocks, for at most 10 s. If this system doesn't
  // enforce the limit, or doesn't wake a reader when the limit rises, returns UNAVAILABLE with the
  // reason.
  static absl::Status CheckSupport();

  // Limits the socket of `fd`. Call it before gRPC gets `fd`. gRPC owns `fd` and may close it at
  // any time; this object owns a duplicate. `pool` may be null; otherwise it must outlive every
  // read of the socket. Returns null if the process has no descriptor left, if `fd` is 2^20 or
  // higher, or if the system gives sockets no cookies (SO_COOKIE).
  static std::unique_ptr<LimitedSocket> Make(int fd, int64_t limit_bytes, ReceivePool* pool);
  // Removes the limit and closes fd(). gRPC's descriptor stays open.
  ~LimitedSocket();
  LimitedSocket(const LimitedSocket&) = delete;
  LimitedSocket& operator=(const LimitedSocket&) = delete;

  // Returns this object's own descriptor of the socket, valid as long as this object.
  int fd() const { return own_fd_; }
  // Returns how many bytes gRPC has read while there was a limit. Returns 0 after gRPC has closed
  // its descriptor and another limited socket has got the same number.
  int64_t received_bytes() const;
  // Sets the largest value that received_bytes() may reach. kUnlimited removes the limit for good,
  // and leaves the pool. If a read has returned EAGAIN because of the old limit or the full pool,
  // and received_bytes() is below the new limit, the kernel reports the socket as readable again.
  void SetLimit(int64_t limit_bytes);
  // Returns how many bytes of the pool this socket uses.
  int64_t pool_bytes() const;
  // Subtracts pool_bytes() from the pool. Bytes that the socket receives later count again.
  void ReturnPoolBytes();
  // Removes the socket and its bytes from the pool. Bytes that it receives later don't count.
  void LeavePool();
  // Resets the TCP connection and leaves the pool. gRPC's next read returns an error or the end of
  // the stream.
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
