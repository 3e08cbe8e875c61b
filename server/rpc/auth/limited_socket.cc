#include "tensord/server/rpc/auth/limited_socket.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tensord/common/util/mutex.h"

// A 32-bit msghdr may differ from the kernel's.
static_assert(sizeof(void*) == 8, "recvmsg is replaced on 64-bit Linux only");

namespace tensord::server {

// The state of one descriptor number. A slot outlives its socket. Its cookie then differs from the
// cookie of the next socket with that number.
struct LimitedSocket::Slot {
  std::atomic<bool> limited = false;

  Mutex mu;
  uint64_t cookie ABSL_GUARDED_BY(mu) = 0;
  int64_t limit_bytes ABSL_GUARDED_BY(mu) = 0;
  int64_t received_bytes ABSL_GUARDED_BY(mu) = 0;
  bool waiting ABSL_GUARDED_BY(mu) = false;  // the limit has made recvmsg return EAGAIN
  ReceivePool* pool ABSL_GUARDED_BY(mu) = nullptr;
  int64_t pool_bytes ABSL_GUARDED_BY(mu) = 0;  // the part of received_bytes that the pool counts

  void ReturnPoolBytes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (pool != nullptr) pool->used_bytes -= std::exchange(pool_bytes, 0);
  }
  void LeavePool() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    ReturnPoolBytes();
    pool = nullptr;
  }
};

namespace {

// Make() allocates a page of slots when it first needs it. Pages are never freed, because recvmsg
// reads them without a lock.
constexpr int kSlotsPerPage = 1024;
constexpr int kMaxPages = 1024;
std::atomic<void*> pages[kMaxPages];

// The buffers that one read of a limited socket fills. gRPC passes no more. A longer list is
// shortened, which recvmsg(2) allows.
constexpr size_t kMaxBuffers = 64;

uint64_t CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size);
  return cookie;
}

ssize_t SystemReceive(int fd, msghdr* message, int flags) {
  return syscall(SYS_recvmsg, fd, message, flags);
}

// Receives at most `room` bytes.
ssize_t ReceiveUpTo(int64_t room, int fd, msghdr* message, int flags) {
  iovec buffers[kMaxBuffers];
  msghdr shortened = *message;
  shortened.msg_iov = buffers;
  shortened.msg_iovlen = 0;
  const size_t count = std::min<size_t>(message->msg_iovlen, kMaxBuffers);
  for (size_t i = 0; i < count && room > 0; ++i) {
    iovec buffer = message->msg_iov[i];
    buffer.iov_len = std::min<size_t>(buffer.iov_len, static_cast<size_t>(room));
    room -= static_cast<int64_t>(buffer.iov_len);
    buffers[shortened.msg_iovlen++] = buffer;
  }
  const ssize_t received = SystemReceive(fd, &shortened, flags);
  message->msg_namelen = shortened.msg_namelen;
  message->msg_controllen = shortened.msg_controllen;
  message->msg_flags = shortened.msg_flags;
  return received;
}

}  // namespace

// Implements recvmsg.
struct ReceiveHook {
  static ssize_t Receive(int fd, msghdr* message, int flags) {
    LimitedSocket::Slot* const slot = LimitedSocket::Find(fd);
    if (slot == nullptr || !slot->limited.load(std::memory_order_acquire)) {
      return SystemReceive(fd, message, flags);
    }
    const uint64_t cookie = CookieOf(fd);
    slot->mu.Lock();
    // Another socket may have the number by now. The error queue holds no bytes of the peer.
    if (!slot->limited || slot->cookie != cookie || (flags & MSG_ERRQUEUE) != 0) {
      slot->mu.Unlock();
      return SystemReceive(fd, message, flags);
    }
    const ssize_t received = ReceiveLimited(*slot, fd, message, flags);
    slot->mu.Unlock();
    return received;
  }

 private:
  static ssize_t ReceiveLimited(LimitedSocket::Slot& slot, int fd, msghdr* message, int flags)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(slot.mu) {
    const int64_t room = Room(slot);
    if (room <= 0) {
      slot.waiting = true;
      errno = EAGAIN;
      return -1;
    }
    const ssize_t received = ReceiveUpTo(room, fd, message, flags);
    if (received > 0) {
      slot.received_bytes += received;
      if (slot.pool != nullptr) {
        slot.pool->used_bytes += received;
        slot.pool_bytes += received;
      }
    }
    return received;
  }

  static int64_t Room(LimitedSocket::Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(slot.mu) {
    const int64_t room = slot.limit_bytes - slot.received_bytes;
    if (room <= 0 || slot.pool == nullptr) return room;
    const int64_t left = slot.pool->capacity_bytes - slot.pool->used_bytes;
    if (left <= 0) {
      const uint64_t one = 1;
      (void)!write(slot.pool->full_event_fd, &one, sizeof(one));
    }
    return std::min(room, left);
  }
};

LimitedSocket::Slot* LimitedSocket::Find(int fd) {
  if (fd < 0 || fd >= kSlotsPerPage * kMaxPages) return nullptr;
  auto* page = static_cast<Slot*>(pages[fd / kSlotsPerPage].load(std::memory_order_acquire));
  return page != nullptr ? page + fd % kSlotsPerPage : nullptr;
}

std::unique_ptr<LimitedSocket> LimitedSocket::Make(int fd, int64_t limit_bytes, ReceivePool* pool) {
  if (fd < 0 || fd >= kSlotsPerPage * kMaxPages) return nullptr;
  const int own_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own_fd < 0) return nullptr;
  std::atomic<void*>& page = pages[fd / kSlotsPerPage];
  if (page.load(std::memory_order_acquire) == nullptr) {
    auto* made = new Slot[kSlotsPerPage];
    void* none = nullptr;
    if (!page.compare_exchange_strong(none, made)) delete[] made;  // another thread was first
  }
  Slot& slot = *Find(fd);
  const uint64_t cookie = CookieOf(fd);
  if (cookie == 0) {
    close(own_fd);
    return nullptr;
  }
  MutexLock lock(&slot.mu);
  slot.LeavePool();  // of a socket that had this number before
  slot.cookie = cookie;
  slot.limit_bytes = limit_bytes;
  slot.received_bytes = 0;
  slot.waiting = false;
  slot.pool = pool;
  slot.pool_bytes = 0;
  slot.limited = limit_bytes != kUnlimited;
  return std::unique_ptr<LimitedSocket>(new LimitedSocket(fd, own_fd, cookie));
}

namespace {

// Closes a descriptor at the end of a scope.
struct ScopedFd {
  ~ScopedFd() {
    if (fd >= 0) close(fd);
  }
  int fd = -1;
};

// Connects two sockets over loopback.
bool ConnectPair(ScopedFd* sender, ScopedFd* receiver) {
  const ScopedFd listener{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  auto* const address = reinterpret_cast<sockaddr*>(&at);
  if (bind(listener.fd, address, size) != 0 || listen(listener.fd, 1) != 0 ||
      getsockname(listener.fd, address, &size) != 0) {
    return false;
  }
  sender->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(sender->fd, address, size) != 0) return false;
  receiver->fd = accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  return receiver->fd >= 0;
}

// Returns how many bytes a read gets, or -1.
ssize_t ReadSome(int fd) {
  char bytes[8];
  iovec buffer = {bytes, sizeof(bytes)};
  msghdr message = {};
  message.msg_iov = &buffer;
  message.msg_iovlen = 1;
  return recvmsg(fd, &message, 0);
}

}  // namespace

absl::Status LimitedSocket::CheckSupport() {
  constexpr int kTimeoutMs = 5000;
  if (dlsym(RTLD_DEFAULT, "recvmsg") != reinterpret_cast<void*>(&recvmsg)) {
    return absl::UnavailableError("shared libraries don't call this program's recvmsg");
  }
  ScopedFd sender;
  ScopedFd receiver;
  if (!ConnectPair(&sender, &receiver)) {
    return absl::UnavailableError("no connection over loopback can be made");
  }
  const ScopedFd epoll{epoll_create1(EPOLL_CLOEXEC)};
  epoll_event event = {.events = EPOLLIN | EPOLLET, .data = {}};
  epoll_ctl(epoll.fd, EPOLL_CTL_ADD, receiver.fd, &event);
  const auto limited = Make(receiver.fd, /*limit_bytes=*/1, /*pool=*/nullptr);
  if (limited == nullptr) return absl::UnavailableError("sockets have no SO_COOKIE");
  if (send(sender.fd, "ab", 2, MSG_NOSIGNAL) != 2 ||
      epoll_wait(epoll.fd, &event, 1, kTimeoutMs) != 1) {
    return absl::UnavailableError("no data arrives over loopback");
  }
  if (ReadSome(receiver.fd) != 1 || ReadSome(receiver.fd) != -1) {
    return absl::UnavailableError("another library replaces recvmsg(2)");
  }
  limited->SetLimit(kUnlimited);
  if (epoll_wait(epoll.fd, &event, 1, kTimeoutMs) != 1 || ReadSome(receiver.fd) != 1) {
    return absl::UnavailableError("setting SO_RCVLOWAT doesn't wake a reader");
  }
  return absl::OkStatus();
}

LimitedSocket::~LimitedSocket() {
  SetLimit(kUnlimited);
  close(own_fd_);
}

int64_t LimitedSocket::received_bytes() const {
  Slot& slot = *Find(reader_fd_);
  MutexLock lock(&slot.mu);
  return slot.cookie == cookie_ ? slot.received_bytes : 0;
}

void LimitedSocket::SetLimit(int64_t limit_bytes) {
  Slot& slot = *Find(reader_fd_);
  {
    MutexLock lock(&slot.mu);
    if (slot.cookie != cookie_) return;
    if (limit_bytes == kUnlimited) {
      slot.LeavePool();
      slot.limited = false;
    }
    slot.limit_bytes = limit_bytes;
    if (!slot.waiting || (slot.limited && limit_bytes <= slot.received_bytes)) return;
    slot.waiting = false;
  }
  const int one = 1;
  setsockopt(own_fd_, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
}

void LimitedSocket::LeavePool() {
  Slot& slot = *Find(reader_fd_);
  MutexLock lock(&slot.mu);
  if (slot.cookie == cookie_) slot.LeavePool();
}

void LimitedSocket::ReturnPoolBytes() {
  Slot& slot = *Find(reader_fd_);
  MutexLock lock(&slot.mu);
  if (slot.cookie == cookie_) slot.ReturnPoolBytes();
}

int64_t LimitedSocket::pool_bytes() const {
  Slot& slot = *Find(reader_fd_);
  MutexLock lock(&slot.mu);
  return slot.cookie == cookie_ ? slot.pool_bytes : 0;
}

void LimitedSocket::Reset() {
  Slot& slot = *Find(reader_fd_);
  // The lock keeps gRPC from reading a limited socket until the connection has ended.
  MutexLock lock(&slot.mu);
  // connect(2) with AF_UNSPEC resets the connection. After shutdown(2), gRPC could still read the
  // bytes that have arrived.
  const sockaddr unspecified = {.sa_family = AF_UNSPEC, .sa_data = {}};
  if (connect(own_fd_, &unspecified, sizeof(unspecified)) != 0) shutdown(own_fd_, SHUT_RDWR);
  if (slot.cookie != cookie_) return;
  slot.LeavePool();
  slot.limited = false;
}

}  // namespace tensord::server

// Replaces the C library's function in this program, and in the libraries that it loads.
extern "C" __attribute__((visibility("default"))) ssize_t recvmsg(int fd, msghdr* message,
                                                                  int flags) {
  return tensord::server::ReceiveHook::Receive(fd, message, flags);
}
