#include "tensord/server/rpc/auth/listeners.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif

namespace tensord::server {
namespace {

// The window: how many bytes gRPC may read from a connection beyond its credit. It suffices for a
// TLS handshake with a client's certificates and for the headers of a first call (8 KiB at most).
// Headers may take fifteen times their size in memory.
constexpr int64_t kWindowBytes = 32 << 10;
// The most that gRPC reads from all unadmitted connections together.
constexpr int64_t kPoolBytes = 3 << 20;
// Credit for the headers of an admitted call.
constexpr int64_t kCallHeaderBytes = 9 << 10;
// After a call has ended, the client may still send this much of its request, which gRPC drops.
// gRPC's flow control allows up to 4 MiB of one call in flight.
constexpr int64_t kDroppedBytes = 8 << 20;
// HTTP/2 and TLS framing of a request: 1/kFramingShare of its bytes, plus kFramingBytes.
constexpr int64_t kFramingShare = 64;
constexpr int64_t kFramingBytes = 1 << 10;
// Credit that is added every kInspectIntervalMs, for bytes that belong to no call, such as pings.
constexpr int64_t kRefillBytes = 512;
// The same for an unadmitted connection, for example for health probes. Its bytes still count in
// the pool.
constexpr int64_t kUnadmittedRefillBytes = 32;
// The limit while a handler waits for a request: larger than any request.
constexpr int64_t kAnyRequestBytes = int64_t{1} << 60;
// SO_RCVBUF of a connection. The kernel doubles this value.
constexpr int kReceiveBufferBytes = 64 << 10;
// SO_RCVBUF of a trusted connection, on kernels without SO_BUF_LOCK, where the automatic sizing of
// the buffer can't be re-enabled.
constexpr int kTrustedReceiveBufferBytes = 8 << 20;
// A connection's token bucket: how many refused and cancelled calls it holds, and how many of them
// it loses in a second.
constexpr double kMaxRejections = 50;
constexpr double kMaxTrustedRejections = 100;
constexpr double kRejectionRefillPerSecond = 20;
// The interval between two inspections of all connections. While descriptors run short, the server
// tries to accept again every kDescriptorIntervalMs.
constexpr int kInspectIntervalMs = 500;
constexpr int kDescriptorIntervalMs = 5;
constexpr int kMaxUnadmitted = 1024;
// To make room for a new connection, the server closes no unadmitted connection that is younger
// than this.
constexpr auto kMinUnadmittedTime = std::chrono::milliseconds(200);
// Descriptors that are reserved for uses other than connections.
constexpr int kReservedDescriptors = 64;
constexpr int kBacklog = 1024;
constexpr int kMaxAcceptedAtOnce = 64;
// The kernel ends a connection if the peer acknowledges nothing for this time.
constexpr int kUserTimeoutMs = 20000;

absl::Status CannotListen(const std::string& address, const std::string& why) {
  return absl::UnavailableError(absl::StrCat("can't listen on ", address, ": ", why));
}

std::string Errno(int error) { return std::strerror(error); }

// Converts an IPv4 address to its IPv6 form.
void MapV4(const in_addr& v4, in6_addr* v6) {
  *v6 = {};
  v6->s6_addr[10] = v6->s6_addr[11] = 0xff;
  std::memcpy(v6->s6_addr + 12, &v4, sizeof(v4));
}

in_port_t& PortOf(sockaddr* address) {
  return address->sa_family == AF_INET ? reinterpret_cast<sockaddr_in*>(address)->sin_port
                                       : reinterpret_cast<sockaddr_in6*>(address)->sin6_port;
}

// Returns a listening socket. On failure, returns -1 and sets errno.
int BindTcp(const addrinfo& at) {
  const int fd = socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int on = 1;
  const int off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // "[::]" accepts IPv4 connections, too.
  if (at.ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (bind(fd, at.ai_addr, at.ai_addrlen) == 0 && listen(fd, kBacklog) == 0) return fd;
  const int why = errno;
  close(fd);
  errno = why;
  return -1;
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

}  // namespace

Listeners::PeerKey Listeners::KeyOf(const sockaddr_storage& peer) {
  PeerKey key;
  if (peer.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(peer);
    MapV4(v4.sin_addr, &key.address);
    key.port = ntohs(v4.sin_port);
  } else {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(peer);
    key.address = v6.sin6_addr;
    key.port = ntohs(v6.sin6_port);
  }
  return key;
}

std::optional<Listeners::PeerKey> Listeners::ParsePeer(absl::string_view peer) {
  const bool is_v6 = absl::ConsumePrefix(&peer, "ipv6:");
  if (!is_v6 && !absl::ConsumePrefix(&peer, "ipv4:")) return std::nullopt;
  const size_t colon = peer.rfind(':');
  if (colon == absl::string_view::npos) return std::nullopt;
  PeerKey key;
  const char* const end = peer.data() + peer.size();
  const auto [rest, error] = std::from_chars(peer.data() + colon + 1, end, key.port);
  if (error != std::errc() || rest != end) return std::nullopt;
  absl::string_view host = peer.substr(0, colon);
  for (absl::string_view open : {"[", "%5B", "%5b"}) absl::ConsumePrefix(&host, open);
  host = host.substr(0, host.find_first_of("]%"));  // "%" begins a link-local address's interface
  char text[INET6_ADDRSTRLEN] = {};
  if (host.size() >= sizeof(text)) return std::nullopt;
  host.copy(text, host.size());
  in_addr v4 = {};
  if (is_v6) {
    if (inet_pton(AF_INET6, text, &key.address) != 1) return std::nullopt;
  } else {
    if (inet_pton(AF_INET, text, &v4) != 1) return std::nullopt;
    MapV4(v4, &key.address);
  }
  return key;
}

Listeners::~Listeners() { Stop(); }

absl::Status Listeners::ListenTcp(const std::string& address, std::vector<Listener>* listeners,
                                  std::string* bound) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (!host.empty() && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found);
  if (error != 0) return CannotListen(address, gai_strerror(error));
  const std::unique_ptr<addrinfo, FreeAddresses> addresses(found);
  // A name such as localhost may stand for several addresses, on the same port.
  in_port_t port = 0;
  for (addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (port != 0) PortOf(each->ai_addr) = port;
    const int fd = BindTcp(*each);
    if (fd >= 0) {
      sockaddr_storage at = {};
      socklen_t size = sizeof(at);
      getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size);
      port = PortOf(reinterpret_cast<sockaddr*>(&at));
      listeners->push_back({.fd = fd});
    } else if (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL) {
      return CannotListen(address, Errno(errno));  // this machine has the address's family
    }
  }
  if (listeners->empty()) return CannotListen(address, Errno(errno));
  *bound = absl::StrCat(address.substr(0, colon), ":", ntohs(port));
  return absl::OkStatus();
}

absl::Status Listeners::ListenUnix(const std::string& path, Listener* listener) {
  sockaddr_un at = {};
  at.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(at.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("\"unix:", path, "\": a path of 1 to ",
                                                   sizeof(at.sun_path) - 1, " bytes is needed"));
  }
  path.copy(at.sun_path, sizeof(at.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return CannotListen("unix:" + path, Errno(errno));
  // Removes a socket file that an earlier server has left, but not one that a server listens on.
  const auto* generic = reinterpret_cast<const sockaddr*>(&at);
  const bool in_use = connect(fd, generic, sizeof(at)) == 0 || errno == EAGAIN;
  close(fd);
  if (in_use) return CannotListen("unix:" + path, "another server listens there");
  struct stat what = {};
  if (stat(path.c_str(), &what) == 0 && S_ISSOCK(what.st_mode)) unlink(path.c_str());
  listener->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener->fd < 0 || bind(listener->fd, generic, sizeof(at)) != 0 ||
      listen(listener->fd, kBacklog) != 0) {
    const int why = errno;
    if (listener->fd >= 0) close(listener->fd);
    return CannotListen("unix:" + path, Errno(why));
  }
  listener->is_unix = true;
  listener->path = path;
  return absl::OkStatus();
}

absl::Status Listeners::Listen(const std::string& address, grpc::ServerBuilder* builder,
                               std::shared_ptr<grpc::ServerCredentials> credentials) {
  std::vector<Listener> added;
  std::string bound = address;
  absl::Status status;
  if (absl::StartsWith(address, "unix:")) {
    status = ListenUnix(address.substr(5), &added.emplace_back());
    if (!status.ok()) added.clear();
  } else {
    status = ListenTcp(address, &added, &bound);
  }
  // Stop() closes these sockets, also after an error.
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  for (Listener& listener : added) {
    listener.acceptor =
        builder->experimental().AddExternalConnectionAcceptor(Type::FROM_FD, credentials);
    listeners_.push_back(std::move(listener));
  }
  if (!status.ok()) return status;
  addresses_.push_back(std::move(bound));
  return absl::OkStatus();
}

Listeners::Listeners() { pool_.capacity_bytes = kPoolBytes; }

void Listeners::Start() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  const absl::Status supported = LimitedSocket::CheckSupport();
  has_limits_ = supported.ok();
  if (!has_limits_) {
    std::cerr << absl::StrCat(
        "tensord: WARNING: this system can't limit how many bytes a connection sends before its "
        "first call is admitted: ",
        supported.message(), "\n");
  }
  stop_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  pool_.full_event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  thread_ = std::thread([this] { Run(); });
}

void Listeners::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    (void)!write(stop_fd_, &one, sizeof(one));
    thread_.join();
    close(stop_fd_);
  }
  for (const Listener& listener : listeners_) {
    close(listener.fd);
    if (listener.is_unix) unlink(listener.path.c_str());
  }
  listeners_.clear();
  MutexLock lock(&mu_);
  ForEachUnadmitted([](Connection& connection) { connection.socket->Reset(); });
  connections_.clear();
  unadmitted_ = 0;
  // The pool has no sockets, so no thread writes to the descriptor.
  if (pool_.full_event_fd >= 0) close(std::exchange(pool_.full_event_fd, -1));
}

void Listeners::Run() {
  enum { kStop, kPoolFull, kFirstListener };
  std::vector<pollfd> ready = {{stop_fd_, POLLIN, 0}, {pool_.full_event_fd, POLLIN, 0}};
  for (const Listener& listener : listeners_) ready.push_back({listener.fd, POLLIN, 0});
  bool has_descriptors = true;
  Clock::time_point inspected;
  while (true) {
    // While no descriptors are free, connections wait in the kernel's backlog.
    const size_t watched = has_descriptors ? ready.size() : size_t{kFirstListener};
    for (pollfd& each : ready) each.revents = 0;
    poll(ready.data(), watched, has_descriptors ? kInspectIntervalMs : kDescriptorIntervalMs);
    if ((ready[kStop].revents & POLLIN) != 0) return;
    if ((ready[kPoolFull].revents & POLLIN) != 0) MakeRoomInPool();
    has_descriptors = true;
    for (const Listener& listener : listeners_) {
      for (int i = 0; i < kMaxAcceptedAtOnce && Accept(listener); ++i) {
      }
      has_descriptors = has_descriptors && errno != EMFILE && errno != ENFILE;
    }
    const auto now = Clock::now();
    if (now - inspected < std::chrono::milliseconds(kInspectIntervalMs)) continue;
    inspected = now;
    Inspect();
  }
}

bool Listeners::HasDescriptors() const {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  // The kernel assigns the lowest free number, so a high number means that few are left. Each
  // connection takes two descriptors.
  const int lowest = fcntl(stop_fd_, F_DUPFD_CLOEXEC, 0);
  if (lowest < 0) return false;
  close(lowest);
  return static_cast<int64_t>(lowest) + 2 <
         static_cast<int64_t>(limit.rlim_cur) - kReservedDescriptors;
}

bool Listeners::Accept(const Listener& listener) {
  pollfd waiting = {listener.fd, POLLIN, 0};
  if (poll(&waiting, 1, 0) <= 0) {
    errno = EAGAIN;
    return false;
  }
  const bool has_room = HasDescriptors();
  bool too_many = false;
  {
    MutexLock lock(&mu_);
    too_many = unadmitted_ >= kMaxUnadmitted;
  }
  if ((!has_room || too_many) && CloseOldestUnadmitted()) {
    errno = EMFILE;  // the descriptor is free only after gRPC has closed the connection
    return false;
  }
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  const int fd =
      accept4(listener.fd, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return false;
  errno = 0;
  std::unique_ptr<LimitedSocket> socket;
  if (has_room && !listener.is_unix) {
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kReceiveBufferBytes, sizeof(kReceiveBufferBytes));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUserTimeoutMs, sizeof(kUserTimeoutMs));
    socket = has_limits_ ? LimitedSocket::Make(fd, kWindowBytes, &pool_)
                         : LimitedSocket::Make(fd, LimitedSocket::kUnlimited, nullptr);
  }
  if (!has_room || (socket == nullptr && has_limits_ && !listener.is_unix)) {
    close(fd);
    errno = 0;
    return true;
  }
  if (socket != nullptr) {
    const auto now = Clock::now();
    MutexLock lock(&mu_);
    const PeerKey key = KeyOf(peer);
    connections_[key].push_back(
        {.peer = key, .socket = std::move(socket), .accepted_at = now, .rejections_at = now});
    ++unadmitted_;
  }
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.listener_fd = listener.fd;
  connection.fd = fd;
  listener.acceptor->HandleNewConnection(&connection);
  errno = 0;
  return true;
}

template <typename Visit>
void Listeners::ForEachUnadmitted(Visit visit) {
  for (auto& [peer, connections] : connections_) {
    for (Connection& connection : connections) {
      if (!connection.admitted) visit(connection);
    }
  }
}

bool Listeners::CloseOldestUnadmitted() {
  MutexLock lock(&mu_);
  Connection* oldest = nullptr;
  ForEachUnadmitted([&oldest](Connection& connection) {
    if (oldest == nullptr || connection.accepted_at < oldest->accepted_at) oldest = &connection;
  });
  if (oldest == nullptr) return false;
  if (Clock::now() - oldest->accepted_at >= kMinUnadmittedTime) Close(*oldest);
  return true;
}

void Listeners::MakeRoomInPool() {
  uint64_t count = 0;
  (void)!read(pool_.full_event_fd, &count, sizeof(count));
  const auto now = Clock::now();
  MutexLock lock(&mu_);
  while (pool_.used_bytes >= pool_.capacity_bytes) {
    // Doesn't close the connection that holds most: it may be that of a legitimate client, which
    // has just connected and sent large headers or certificates.
    const int64_t share = pool_.used_bytes / std::max(unadmitted_, 1);
    Connection* oldest = nullptr;
    ForEachUnadmitted([&](Connection& connection) {
      if (connection.socket->pool_bytes() < share) return;
      if (oldest == nullptr || connection.accepted_at < oldest->accepted_at) oldest = &connection;
    });
    if (oldest == nullptr) break;
    Close(*oldest);
  }
  ForEachUnadmitted([&](Connection& connection) { UpdateLimit(connection, now); });
}

void Listeners::Close(Connection& connection) {
  connection.socket->Reset();
  if (!connection.admitted) --unadmitted_;
  const auto it = connections_.find(connection.peer);
  it->second.erase(it->second.begin() + (&connection - it->second.data()));
  if (it->second.empty()) connections_.erase(it);
}

void Listeners::Inspect() {
  const auto now = Clock::now();
  MutexLock lock(&mu_);
  for (auto it = connections_.begin(); it != connections_.end();) {
    auto& connections = it->second;
    for (auto connection = connections.begin(); connection != connections.end();) {
      LimitedSocket& socket = *connection->socket;
      tcp_info info = {};
      socklen_t size = sizeof(info);
      const bool known = getsockopt(socket.fd(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0;
      if (!known || info.tcpi_state != TCP_ESTABLISHED) {
        // A client that has closed its end reads no answers, so gRPC needn't read its calls.
        if (!connection->trusted) socket.Reset();
        if (!connection->admitted) --unadmitted_;
        connection = connections.erase(connection);
        continue;
      }
      connection->credit_bytes += connection->admitted ? kRefillBytes : kUnadmittedRefillBytes;
      UpdateLimit(*connection, now);
      ++connection;
    }
    if (connections.empty()) {
      connections_.erase(it++);
    } else {
      ++it;
    }
  }
}

double Listeners::RejectionsAt(const Connection& connection, Clock::time_point now) {
  const double seconds = std::chrono::duration<double>(now - connection.rejections_at).count();
  return std::max(connection.rejections - seconds * kRejectionRefillPerSecond, 0.0);
}

bool Listeners::CountRejection(Connection& connection, Clock::time_point now) {
  connection.rejections = RejectionsAt(connection, now) + 1;
  connection.rejections_at = now;
  return connection.rejections <= (connection.trusted ? kMaxTrustedRejections : kMaxRejections);
}

void Listeners::UpdateLimit(Connection& connection, Clock::time_point now) {
  if (connection.trusted || !has_limits_) return;
  LimitedSocket& socket = *connection.socket;
  const int64_t received = socket.received_bytes();
  // The credit is at most what has been received, so the limit is at most a window beyond that.
  connection.credit_bytes = std::clamp<int64_t>(connection.credit_bytes, 0, received);
  int64_t limit = kWindowBytes + connection.credit_bytes;
  if (connection.drops_requests) limit += kDroppedBytes;
  // A request that a handler waits for is received whole; gRPC refuses one that is too large. While
  // calls were refused or cancelled recently, the connection gets no such allowance.
  if (connection.requests_pending > 0 && RejectionsAt(connection, now) == 0) {
    limit = kAnyRequestBytes;
  }
  socket.SetLimit(limit);
}

template <typename Update>
void Listeners::ForEach(absl::string_view peer, Clock::time_point began_at, Update update) {
  const std::optional<PeerKey> key = ParsePeer(peer);
  if (!key) return;
  const auto now = Clock::now();
  MutexLock lock(&mu_);
  const auto it = connections_.find(*key);
  if (it == connections_.end()) return;
  // From the last to the first, since Close() removes records.
  for (size_t i = it->second.size(); i-- > 0;) {
    Connection& connection = it->second[i];
    if (connection.accepted_at > began_at) continue;
    if (update(connection, now)) {
      UpdateLimit(connection, now);
    } else {
      Close(connection);
    }
  }
}

Listeners::CallState Listeners::CallAdmitted(absl::string_view peer) {
  auto state = CallState::kNotCounted;
  ForEach(peer, Clock::time_point::max(),
          [&](Connection& connection, Clock::time_point) ABSL_NO_THREAD_SAFETY_ANALYSIS {
            if (connection.trusted) return true;
            if (!std::exchange(connection.admitted, true)) {
              connection.socket->LeavePool();
              --unadmitted_;
            }
            connection.credit_bytes += kCallHeaderBytes;
            ++connection.requests_pending;
            state = CallState::kRequestPending;
            return true;
          });
  return state;
}

Listeners::CallState Listeners::CallRefused(absl::string_view peer) {
  ForEach(peer, Clock::time_point::max(), [](Connection& connection, Clock::time_point now) {
    ++connection.refused_calls;
    return CountRejection(connection, now);
  });
  return CallState::kRefused;
}

void Listeners::RequestReceived(absl::string_view peer, Clock::time_point began_at, int64_t bytes) {
  ForEach(peer, began_at, [bytes](Connection& connection, Clock::time_point) {
    connection.requests_pending = std::max(connection.requests_pending - 1, 0);
    connection.credit_bytes += bytes + bytes / kFramingShare + kFramingBytes;
    return true;
  });
}

void Listeners::SessionUsed(absl::string_view peer, Clock::time_point began_at) {
  ForEach(peer, began_at, [](Connection& connection, Clock::time_point) {
    if (std::exchange(connection.trusted, true)) return true;
    connection.socket->SetLimit(LimitedSocket::kUnlimited);
    // Re-enables the kernel's automatic sizing of the buffer (socket(7), since Linux 5.15).
    const int unlocked = 0;
    const int fd = connection.socket->fd();
    if (setsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &unlocked, sizeof(unlocked)) != 0) {
      setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kTrustedReceiveBufferBytes,
                 sizeof(kTrustedReceiveBufferBytes));
    }
    return true;
  });
}

void Listeners::RefusedCallServed(absl::string_view peer, Clock::time_point began_at) {
  ForEach(peer, began_at, [](Connection& connection, Clock::time_point) {
    connection.rejections = std::max(connection.rejections - 1, 0.0);
    return true;
  });
}

void Listeners::CallCancelled(absl::string_view peer, Clock::time_point began_at) {
  ForEach(peer, began_at, [](Connection& connection, Clock::time_point now) {
    connection.credit_bytes -= kCallHeaderBytes;
    return CountRejection(connection, now);
  });
}

void Listeners::CallEnded(absl::string_view peer, Clock::time_point began_at, CallState state) {
  ForEach(peer, began_at, [state](Connection& connection, Clock::time_point) {
    int& count =
        state == CallState::kRefused ? connection.refused_calls : connection.requests_pending;
    if (state != CallState::kRequestReceived) count = std::max(count - 1, 0);
    connection.drops_requests = true;
    // Every call has ended, or its request has been received. So gRPC holds no bytes of requests.
    if (connection.refused_calls == 0 && connection.requests_pending == 0) {
      connection.credit_bytes = connection.socket->received_bytes();
      connection.socket->ReturnPoolBytes();
    }
    return true;
  });
}

}  // namespace tensord::server
