// A limit on how many bytes gRPC reads from a TCP connection, and the connection's name in gRPC.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/budget.h"

namespace tensord::server {

// Counts the bytes that gRPC holds of several sockets together. While `held` is full, its sockets
// receive nothing, except those of which gRPC holds less than `reserved_bytes`. Thread-safe.
struct ReceivePool {
  BudgetRef held;  // what gRPC holds; null: there is no pool
  int64_t reserved_bytes = 0;
  // How many more bytes the sockets may receive, however many bytes gRPC holds. Null means no
  // limit.
  std::shared_ptr<std::atomic<int64_t>> budget_bytes;
  // gRPC sizes a connection's read buffer by the bytes that it gets until recvmsg returns EAGAIN,
  // and keeps the buffer while the connection is idle. So recvmsg returns EAGAIN after
  // max_read_bytes(): an equal share of `buffer_bytes` for each connection, but at least
  // kMinReadBytes. The buffer may take twice that, and buffers from a time with fewer connections
  // are larger.
  int64_t buffer_bytes = 0;
  BudgetRef sockets;  // counts the connections; null: max_read_bytes() is unlimited

  static constexpr int64_t kMinReadBytes = 16 << 10;
  int64_t max_read_bytes() const {
    if (sockets == nullptr) return Budget::kUnlimited;
    return std::max(kMinReadBytes, buffer_bytes / std::max<int64_t>(1, sockets->used()));
  }
  bool full() const { return held != nullptr && held->room() <= 0; }
};

// The sockets whose last read returned EAGAIN because of their limit or their pool, by `id`.
// Thread-safe.
class StalledSockets {
 public:
  StalledSockets();
  ~StalledSockets();
  StalledSockets(const StalledSockets&) = delete;
  StalledSockets& operator=(const StalledSockets&) = delete;

  // Adds a socket. The id 0 belongs to no socket and only makes event_fd() readable.
  void Add(uint64_t id);
  // Removes and returns all. A socket may be listed more than once.
  std::vector<uint64_t> TakeAll();
  // An eventfd(2) that is readable while there are any.
  int event_fd() const { return event_fd_; }

 private:
  const int event_fd_;
  Mutex mu_;
  std::vector<uint64_t> ids_ ABSL_GUARDED_BY(mu_);
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
// Thread-safe.
class LimitedSocket {
 public:
  // Tests a limit on a loopback connection. Blocks, for at most 10 s. If this system doesn't
  // enforce the limit, or doesn't wake a reader when the limit rises, returns UNAVAILABLE with the
  // reason.
  static absl::Status CheckSupport();

  struct Options {
    int64_t limit_bytes = 0;
    ReceivePool pool;
    // If a read returns EAGAIN because of the limit or the pool, `id` is added to `stalled`. May be
    // null; otherwise it must outlive every read of the socket.
    StalledSockets* stalled = nullptr;
    uint64_t id = 0;
  };
  // Limits the socket of `fd`. Call it before gRPC gets `fd`. gRPC owns `fd` and may close it at
  // any time; this object owns a duplicate. Returns null if the process has no descriptor left, if
  // `fd` is 2^20 or higher, or if the system gives sockets no cookies (SO_COOKIE).
  static std::unique_ptr<LimitedSocket> Make(int fd, Options options);
  // Removes the limit, leaves the pool and closes fd(). gRPC's descriptor stays open.
  ~LimitedSocket();
  LimitedSocket(const LimitedSocket&) = delete;
  LimitedSocket& operator=(const LimitedSocket&) = delete;

  // gRPC's descriptor of a socket, also after the LimitedSocket has been destroyed.
  struct Reader {
    int fd;
    uint64_t cookie;
    // Returns whether gRPC has closed the descriptor. It does so once it has freed all calls of the
    // connection, which may be long after the connection has ended.
    bool closed() const;
  };
  Reader reader() const { return {reader_fd_, cookie_}; }

  // Returns this object's own descriptor of the socket, valid as long as this object.
  int fd() const { return own_fd_; }
  // Returns how many bytes gRPC has read while there was a limit. Returns 0 after gRPC has closed
  // its descriptor and another limited socket has got the same number.
  int64_t received_bytes() const;
  // Returns how many bytes of the pool this socket uses.
  int64_t pool_bytes() const;
  // Returns whether the last read returned EAGAIN because of the limit or the pool.
  bool stalled() const;

  // Sets the largest value that received_bytes() may reach, and reports that gRPC holds
  // `held_bytes` of the bytes received. The pool counts these. If the socket may read now and is
  // stalled, the kernel reports the socket as readable again.
  void Update(int64_t limit_bytes, int64_t held_bytes);
  // Moves the socket and the bytes that the pool counts to another pool.
  void ChangePool(ReceivePool pool);
  // Removes the limit for good, and leaves the pool.
  void RemoveLimit();
  // Resets the TCP connection and leaves the pool. gRPC's next read returns an error or the end of
  // the stream.
  void Reset();

  // Implements recvmsg(2).
  static ssize_t Receive(int fd, msghdr* message, int flags);

 private:
  struct Slot;

  LimitedSocket(int reader_fd, int own_fd, uint64_t cookie)
      : reader_fd_(reader_fd), own_fd_(own_fd), cookie_(cookie) {}

  // Returns the state of the descriptor number `fd`. Returns null if its page isn't allocated.
  static Slot* Find(int fd);
  // Makes the kernel report waiting bytes again.
  void WakeReader();

  const int reader_fd_;  // gRPC's descriptor
  const int own_fd_;
  const uint64_t cookie_;  // SO_COOKIE: identifies the socket after gRPC has closed reader_fd_
};

// gRPC names a connection by the address that getpeername(2) returns while it accepts the
// connection: grpc::ServerContext::peer(). Connections from one address and port to several
// addresses of the server would have the same name. So limited_socket.cc replaces getpeername, too:
// within RunWithPeerName(), it returns an address of the discard-only block 100::/64 (RFC 6666)
// that contains `id`, on the calling thread.
void RunWithPeerName(uint64_t id, absl::FunctionRef<void()> accept);
// Returns the `id` in a name of RunWithPeerName(), such as "ipv6:%5B100::2a%5D:0". Returns 0 for
// any other name.
uint64_t ParsePeerName(absl::string_view peer);

}  // namespace tensord::server
