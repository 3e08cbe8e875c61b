#include "tensord/server/rpc/auth/limited_socket.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/strip.h"
#include "tensord/common/util/mutex.h"
#include "tensord/common/util/owned_fd.h"

// A 32-bit msghdr may differ from the kernel's.
static_assert(sizeof(void*) == 8, "recvmsg is replaced on 64-bit Linux only");

namespace tensord::server {

// The state of one descriptor number. A slot outlives its socket. Its cookie then differs from the
// cookie of the next socket with that number.
struct LimitedSocket::Slot {
  std::atomic<bool> limited = false;

  Mutex mu;
  uint64_t cookie ABSL_GUARDED_BY(mu) = 0;
  Options options ABSL_GUARDED_BY(mu);
  int64_t received_bytes ABSL_GUARDED_BY(mu) = 0;
  bool stalled ABSL_GUARDED_BY(mu) = false;  // recvmsg has returned EAGAIN because of a limit
  // The bytes received since the socket was last empty, or since `read_bytes` last made recvmsg
  // return EAGAIN twice in a row.
  int64_t read_bytes ABSL_GUARDED_BY(mu) = 0;
  // `read_bytes` has made recvmsg return EAGAIN once.
  bool paused ABSL_GUARDED_BY(mu) = false;
  int64_t pool_bytes ABSL_GUARDED_BY(mu) = 0;  // the bytes that the pool counts

  // Returns how many bytes recvmsg may read.
  int64_t Room() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const ReceivePool& pool = options.pool;
    int64_t room = options.limit_bytes - received_bytes;
    if (pool.budget_bytes != nullptr) room = std::min<int64_t>(room, *pool.budget_bytes);
    if (pool.held == nullptr) return room;
    return std::min(room, std::max(pool.held->room(), pool.reserved_bytes - pool_bytes));
  }
  void SetPoolBytes(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (options.pool.held == nullptr) return;
    options.pool.held->Return(std::exchange(pool_bytes, bytes) - bytes);
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

// Makes the kernel report the bytes that wait in the socket, if any, as if they had just arrived.
void ReportWaitingBytes(int fd) {
  const int one = 1;
  setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
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

ssize_t LimitedSocket::Receive(int fd, msghdr* message, int flags) {
  Slot* const slot = Find(fd);
  if (slot == nullptr || !slot->limited.load(std::memory_order_acquire)) {
    return SystemReceive(fd, message, flags);
  }
  const uint64_t cookie = CookieOf(fd);
  int64_t room = 0;
  bool read_enough = false;
  std::shared_ptr<std::atomic<int64_t>> budget;
  {
    MutexLock lock(&slot->mu);
    // Another socket may have the number by now. The error queue holds no bytes of the peer.
    if (!slot->limited || slot->cookie != cookie || (flags & MSG_ERRQUEUE) != 0) {
      room = -1;
    } else {
      room = std::max<int64_t>(slot->Room(), 0);
      if (room == 0) {
        slot->stalled = true;
        if (slot->options.stalled != nullptr) slot->options.stalled->Add(slot->options.id);
      }
      const int64_t left = slot->options.pool.max_read_bytes() - slot->read_bytes;
      read_enough = room > 0 && left <= 0;
      room = std::clamp<int64_t>(left, 0, room);
      // After the first EAGAIN, gRPC may only finish a read of several pieces. It sets the size of
      // its buffer after the second one.
      if (read_enough && std::exchange(slot->paused, !slot->paused)) slot->read_bytes = 0;
      // Several sockets may read at once, so the room is reserved.
      budget = slot->options.pool.budget_bytes;
      if (budget != nullptr) *budget -= room;
    }
  }
  if (room < 0) return SystemReceive(fd, message, flags);
  if (room == 0) {
    if (read_enough) ReportWaitingBytes(fd);
    errno = EAGAIN;
    return -1;
  }
  // gRPC reads a socket on one thread at a time, so the room can't shrink meanwhile, except by
  // the reads of other sockets of the pool.
  const ssize_t received = ReceiveUpTo(room, fd, message, flags);
  if (budget != nullptr) *budget += room - std::max<ssize_t>(received, 0);
  const int error = errno;
  {
    MutexLock lock(&slot->mu);
    if (slot->limited && slot->cookie == cookie) {
      slot->read_bytes = received > 0 ? slot->read_bytes + received : 0;
      slot->paused = false;
      if (received > 0) {
        slot->received_bytes += received;
        slot->SetPoolBytes(slot->pool_bytes + received);
      }
    }
  }
  errno = error;
  return received;
}

LimitedSocket::Slot* LimitedSocket::Find(int fd) {
  if (fd < 0 || fd >= kSlotsPerPage * kMaxPages) return nullptr;
  auto* page = static_cast<Slot*>(pages[fd / kSlotsPerPage].load(std::memory_order_acquire));
  return page != nullptr ? page + fd % kSlotsPerPage : nullptr;
}

StalledSockets::StalledSockets() : event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

StalledSockets::~StalledSockets() { close(event_fd_); }

void StalledSockets::Add(uint64_t id) {
  MutexLock lock(&mu_);
  ids_.push_back(id);
  const uint64_t one = 1;
  (void)!write(event_fd_, &one, sizeof(one));
}

std::vector<uint64_t> StalledSockets::TakeAll() {
  MutexLock lock(&mu_);
  uint64_t count = 0;
  (void)!read(event_fd_, &count, sizeof(count));
  return std::exchange(ids_, {});
}

std::unique_ptr<LimitedSocket> LimitedSocket::Make(int fd, Options options) {
  if (fd < 0 || fd >= kSlotsPerPage * kMaxPages) return nullptr;
  const uint64_t cookie = CookieOf(fd);
  if (cookie == 0) return nullptr;
  const int own_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own_fd < 0) return nullptr;
  std::atomic<void*>& page = pages[fd / kSlotsPerPage];
  if (page.load(std::memory_order_acquire) == nullptr) {
    auto* made = new Slot[kSlotsPerPage];
    void* none = nullptr;
    if (!page.compare_exchange_strong(none, made)) delete[] made;  // another thread was first
  }
  Slot& slot = *Find(fd);
  MutexLock lock(&slot.mu);
  slot.SetPoolBytes(0);  // of a socket that had this number before
  slot.cookie = cookie;
  slot.options = std::move(options);
  slot.received_bytes = 0;
  slot.read_bytes = 0;
  slot.paused = false;
  slot.stalled = false;
  slot.limited = true;
  return std::unique_ptr<LimitedSocket>(new LimitedSocket(fd, own_fd, cookie));
}

namespace {

// Connects two sockets over loopback.
bool ConnectPair(OwnedFd* sender, OwnedFd* receiver) {
  const OwnedFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  auto* const address = reinterpret_cast<sockaddr*>(&at);
  if (bind(listener.get(), address, size) != 0 || listen(listener.get(), 1) != 0 ||
      getsockname(listener.get(), address, &size) != 0) {
    return false;
  }
  *sender = OwnedFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(sender->get(), address, size) != 0) return false;
  *receiver = OwnedFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  return receiver->get() >= 0;
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
  if (dlsym(RTLD_DEFAULT, "recvmsg") != reinterpret_cast<void*>(&recvmsg) ||
      dlsym(RTLD_DEFAULT, "getpeername") != reinterpret_cast<void*>(&getpeername)) {
    return absl::UnavailableError(
        "shared libraries don't call this program's recvmsg and getpeername");
  }
  OwnedFd sender;
  OwnedFd receiver;
  if (!ConnectPair(&sender, &receiver)) {
    return absl::UnavailableError("no connection over loopback can be made");
  }
  const OwnedFd epoll(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event = {.events = EPOLLIN | EPOLLET, .data = {}};
  epoll_ctl(epoll.get(), EPOLL_CTL_ADD, receiver.get(), &event);
  const auto limited = Make(receiver.get(), {.limit_bytes = 1, .pool = {}});
  if (limited == nullptr) return absl::UnavailableError("sockets have no SO_COOKIE");
  if (send(sender.get(), "ab", 2, MSG_NOSIGNAL) != 2 ||
      epoll_wait(epoll.get(), &event, 1, kTimeoutMs) != 1) {
    return absl::UnavailableError("no data arrives over loopback");
  }
  if (ReadSome(receiver.get()) != 1 || ReadSome(receiver.get()) != -1) {
    return absl::UnavailableError("another library replaces recvmsg(2)");
  }
  limited->RemoveLimit();
  if (epoll_wait(epoll.get(), &event, 1, kTimeoutMs) != 1 || ReadSome(receiver.get()) != 1) {
    return absl::UnavailableError("setting SO_RCVLOWAT doesn't wake a reader");
  }
  return absl::OkStatus();
}

bool LimitedSocket::Reader::closed() const { return CookieOf(fd) != cookie; }

LimitedSocket::~LimitedSocket() {
  RemoveLimit();
  close(own_fd_);
}

int64_t LimitedSocket::received_bytes() const {
  Slot& slot = *Find(reader_fd_);
  MutexLock lock(&slot.mu);
  return slot.cookie == cookie_ ? slot.received_bytes : 0;
}

int64_t LimitedSocket::pool_bytes() const {
  Slot& slot = *Find(reader_fd_);
  MutexLock lock(&slot.mu);
  return slot.cookie == cookie_ ? slot.pool_bytes : 0;
}

bool LimitedSocket::stalled() const {
  Slot& slot = *Find(reader_fd_);
  MutexLock lock(&slot.mu);
  return slot.cookie == cookie_ && slot.stalled;
}

void LimitedSocket::Update(int64_t limit_bytes, int64_t held_bytes) {
  Slot& slot = *Find(reader_fd_);
  {
    MutexLock lock(&slot.mu);
    if (slot.cookie != cookie_ || !slot.limited) return;
    slot.options.limit_bytes = limit_bytes;
    slot.SetPoolBytes(held_bytes);
    if (!slot.stalled || slot.Room() <= 0) return;
    slot.stalled = false;
  }
  WakeReader();
}

void LimitedSocket::ChangePool(ReceivePool pool) {
  Slot& slot = *Find(reader_fd_);
  MutexLock lock(&slot.mu);
  if (slot.cookie != cookie_ || !slot.limited) return;
  const int64_t bytes = slot.pool_bytes;
  slot.SetPoolBytes(0);
  slot.options.pool = std::move(pool);
  slot.SetPoolBytes(bytes);
}

void LimitedSocket::RemoveLimit() {
  Slot& slot = *Find(reader_fd_);
  {
    MutexLock lock(&slot.mu);
    if (slot.cookie != cookie_) return;
    slot.SetPoolBytes(0);
    slot.options.pool = {};
    slot.limited = false;
    if (!std::exchange(slot.stalled, false)) return;
  }
  WakeReader();
}

void LimitedSocket::WakeReader() { ReportWaitingBytes(own_fd_); }

void LimitedSocket::Reset() {
  // connect(2) with AF_UNSPEC resets the connection. After shutdown(2), gRPC could still read the
  // bytes that have arrived. The limit is removed only then: until the connection has ended, gRPC
  // may read no more than before.
  const sockaddr unspecified = {.sa_family = AF_UNSPEC, .sa_data = {}};
  if (connect(own_fd_, &unspecified, sizeof(unspecified)) != 0) shutdown(own_fd_, SHUT_RDWR);
  RemoveLimit();
  // Since the reset, gRPC may have got the kernel's event and then EAGAIN because of the limit.
  // WakeReader() has no effect on a socket that isn't connected, but shutdown(2) has.
  shutdown(own_fd_, SHUT_RDWR);
}

namespace {

// Set within RunWithPeerName().
thread_local const sockaddr_in6* peer_name = nullptr;

// The first eight bytes of the block 100::/64.
constexpr uint8_t kDiscardPrefix[8] = {0x01, 0x00};

}  // namespace

void RunWithPeerName(uint64_t id, absl::FunctionRef<void()> accept) {
  sockaddr_in6 name = {};
  name.sin6_family = AF_INET6;
  std::memcpy(name.sin6_addr.s6_addr, kDiscardPrefix, sizeof(kDiscardPrefix));
  for (int i = 0; i < 8; ++i) {
    name.sin6_addr.s6_addr[8 + i] = static_cast<uint8_t>(id >> (56 - 8 * i));
  }
  peer_name = &name;
  accept();
  peer_name = nullptr;
}

uint64_t ParsePeerName(absl::string_view peer) {
  if (!absl::ConsumePrefix(&peer, "ipv6:")) return 0;
  for (absl::string_view open : {"[", "%5B", "%5b"}) absl::ConsumePrefix(&peer, open);
  const std::string host(peer.substr(0, peer.find_first_of("]%")));
  in6_addr address = {};
  if (inet_pton(AF_INET6, host.c_str(), &address) != 1) return 0;
  if (std::memcmp(address.s6_addr, kDiscardPrefix, sizeof(kDiscardPrefix)) != 0) return 0;
  uint64_t id = 0;
  for (int i = 8; i < 16; ++i) id = id << 8 | address.s6_addr[i];
  return id;
}

}  // namespace tensord::server

// Replace the C library's functions in this program, and in the libraries that it loads.
extern "C" __attribute__((visibility("default"))) ssize_t recvmsg(int fd, msghdr* message,
                                                                  int flags) {
  return tensord::server::LimitedSocket::Receive(fd, message, flags);
}

extern "C" __attribute__((visibility("default"))) int getpeername(int fd, sockaddr* address,
                                                                  socklen_t* size) noexcept {
  using tensord::server::peer_name;
  if (peer_name == nullptr) return static_cast<int>(syscall(SYS_getpeername, fd, address, size));
  std::memcpy(address, peer_name, std::min<size_t>(*size, sizeof(*peer_name)));
  *size = sizeof(*peer_name);
  return 0;
}
