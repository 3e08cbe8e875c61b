#include "tensord/server/rpc/listeners.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>  // with more in tcp_info than the C library knows
#include <netdb.h>
#include <netinet/in.h>

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
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif

namespace tensord::server {
namespace {

// What a stranger may have sent, and all of them together, and how long each has for its first
// call. gRPC may make fifteen times as much of it. An upload over a new connection may bring more
// before its call has been looked at, so that one who has sent too much is looked at once more.
constexpr int64_t kStrangerBytes = 96 << 10;
constexpr int64_t kStrangersBytes = 2 << 20;
constexpr int kLooks = 3;
constexpr auto kStrangersTime = std::chrono::seconds(10);
// What those who have got a call through may send beyond what each of their calls earns them.
constexpr int64_t kGuestBytes = 48 << 10;
constexpr int64_t kBytesOfACall = 1 << 10;
// What HTTP/2's flow control lets through of a request before its first message has been read,
// which on a busy machine takes a while: who has sent no more than that is looked at so often.
constexpr int64_t kRequestBytes = 128 << 10;
constexpr int kPatientLooks = 40;
// What may wait to be read on a connection that uses no session; the kernel doubles it.
constexpr int kStrangersBuffer = 64 << 10;
// Likewise once it does, on kernels that then can't find out by themselves.
constexpr int kTrustedBuffer = 8 << 20;
// Calls in vain, or taken back, also by those who use a session, and how many are forgiven a
// second.
constexpr double kMostStrikes = 50;
constexpr double kMostStrikesOfTheTrusted = 100;
constexpr double kForgivenEachSecond = 20;
// How often strangers are looked at, and those from whom something has come; those who have got a
// call through and are silent; and everybody.
constexpr int kWatchIntervalMs = 5;
constexpr int kGuestsIntervalMs = 20;
constexpr int kIdleIntervalMs = 500;
// Descriptors for everything but connections.
constexpr int kReservedDescriptors = 64;
constexpr int kBacklog = 1024;
constexpr int kEstablished = 1;  // tcp_info::tcpi_state
// A peer that has gone is given up after so long without an answer to what was sent.
constexpr int kUserTimeoutMs = 20000;

absl::Status CannotListen(const std::string& address, const std::string& why) {
  return absl::UnavailableError(absl::StrCat("can't listen on ", address, ": ", why));
}

std::string Errno(int error) { return std::strerror(error); }

// An IPv4 address as IPv6 writes it.
void MapV4(const in_addr& v4, in6_addr* v6) {
  *v6 = {};
  v6->s6_addr[10] = v6->s6_addr[11] = 0xff;
  std::memcpy(v6->s6_addr + 12, &v4, sizeof(v4));
}

in_port_t& PortOf(sockaddr* address) {
  return address->sa_family == AF_INET ? reinterpret_cast<sockaddr_in*>(address)->sin_port
                                       : reinterpret_cast<sockaddr_in6*>(address)->sin6_port;
}

// A listening socket; -1 with errno.
int BindTcp(const addrinfo& at) {
  const int fd = socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int on = 1;
  // "[::]" takes IPv4, too.
  const int off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
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
  host = host.substr(0, host.find_first_of("]%"));  // nor a link-local address's interface
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
      return CannotListen(address, Errno(errno));  // not merely a family that isn't there
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
  // A socket that a former server has left is in the way; one that somebody listens on isn't ours.
  const auto* generic = reinterpret_cast<const sockaddr*>(&at);
  const bool somebody_answers = connect(fd, generic, sizeof(at)) == 0 || errno == EAGAIN;
  close(fd);
  if (somebody_answers) return CannotListen("unix:" + path, "another server listens there");
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
  // Those that are there are closed with the others by Stop().
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

void Listeners::Start() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;  // what a connection costs is little
  setrlimit(RLIMIT_NOFILE, &limit);
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  thread_ = std::thread([this] { Run(); });
}

void Listeners::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    (void)!write(wake_fd_, &one, sizeof(one));
    thread_.join();
    close(wake_fd_);
  }
  for (const Listener& listener : listeners_) {
    close(listener.fd);
    if (listener.is_unix) unlink(listener.path.c_str());
  }
  listeners_.clear();
  MutexLock lock(&mu_);
  for (const auto& [peer, connection] : connections_) close(connection.fd);
  connections_.clear();
}

void Listeners::Run() {
  std::vector<pollfd> ready;
  ready.push_back({wake_fd_, POLLIN, 0});
  for (const Listener& listener : listeners_) ready.push_back({listener.fd, POLLIN, 0});
  int pause_ms = kIdleIntervalMs;
  bool full = false;
  Clock::time_point looked;
  while (true) {
    // Where there are no descriptors, those who wait to be accepted wait on.
    const size_t watched = full ? 1 : ready.size();
    poll(ready.data(), watched, full ? kWatchIntervalMs : pause_ms);
    if ((ready[0].revents & POLLIN) != 0) return;
    full = false;
    for (const Listener& listener : listeners_) {
      constexpr int kMostAtOnce = 64;
      for (int i = 0; i < kMostAtOnce && Accept(listener); ++i) {
      }
      full |= errno == EMFILE || errno == ENFILE;
    }
    // Of the others the descriptor alone is to be given back, which is only urgent where there are
    // few.
    const bool all = full || std::exchange(few_descriptors_, false) ||
                     Clock::now() - looked >= std::chrono::milliseconds(kIdleIntervalMs);
    if (all) looked = Clock::now();
    pause_ms = Inspect(all);
  }
}

bool Listeners::Accept(const Listener& listener) {
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  const int fd =
      accept4(listener.fd, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return false;
  errno = 0;
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  // Descriptors are given out from the lowest on: a high one says that there are few left.
  if (static_cast<int64_t>(fd) + 2 >= static_cast<int64_t>(limit.rlim_cur) - kReservedDescriptors) {
    close(fd);
    few_descriptors_ = true;
    return true;
  }
  if (!listener.is_unix) {
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kStrangersBuffer, sizeof(kStrangersBuffer));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUserTimeoutMs, sizeof(kUserTimeoutMs));
    const int watched = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (watched < 0) {
      close(fd);
      return false;
    }
    MutexLock lock(&mu_);
    const auto [place, is_new] = connections_.try_emplace(KeyOf(peer));
    if (!is_new) close(place->second.fd);  // of the same port before
    place->second = {.fd = watched, .since = Clock::now(), .struck_at = Clock::now()};
  }
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.listener_fd = listener.fd;
  connection.fd = fd;
  listener.acceptor->HandleNewConnection(&connection);
  errno = 0;
  return true;
}

bool Listeners::Floods(Connection& connection, int64_t received_bytes) {
  const int64_t too_much = received_bytes - connection.earned_bytes - kGuestBytes;
  if (too_much <= 0 || connection.reads_much) {
    connection.looks = 0;
    return false;
  }
  return ++connection.looks >= (too_much > kRequestBytes ? kLooks : kPatientLooks);
}

int Listeners::Inspect(bool all) {
  const auto now = Clock::now();
  bool guests = false;
  bool active = false;
  int64_t strangers_bytes = 0;
  std::vector<Connection*> strangers;
  MutexLock lock(&mu_);
  for (auto it = connections_.begin(); it != connections_.end();) {
    Connection& connection = it->second;
    if (connection.trusted && !all) {
      ++it;
      continue;
    }
    tcp_info info = {};
    socklen_t size = sizeof(info);
    const bool known = getsockopt(connection.fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0;
    if (!known || info.tcpi_state != kEstablished) {
      close(connection.fd);
      connections_.erase(it++);
      continue;
    }
    ++it;
    if (connection.trusted) continue;
    const auto received = static_cast<int64_t>(info.tcpi_bytes_received);
    if (connection.welcome) {
      guests = true;
      active |= std::exchange(connection.received_bytes, received) != received;
      if (Floods(connection, received)) SendAway(connection);
      continue;
    }
    if (received > kStrangerBytes) ++connection.looks;
    if (now - connection.since > kStrangersTime || connection.looks >= kLooks) {
      SendAway(connection);
      continue;
    }
    connection.received_bytes = received;
    strangers_bytes += connection.received_bytes;
    strangers.push_back(&connection);
  }
  if (strangers_bytes > kStrangersBytes) {
    std::sort(strangers.begin(), strangers.end(), [](const Connection* a, const Connection* b) {
      return a->received_bytes > b->received_bytes;
    });
    for (Connection* connection : strangers) {
      if (strangers_bytes <= kStrangersBytes) break;
      strangers_bytes -= connection->received_bytes;
      if (++connection->looks >= kLooks) SendAway(*connection);
    }
  }
  if (active || !strangers.empty()) return kWatchIntervalMs;
  return guests ? kGuestsIntervalMs : kIdleIntervalMs;
}

void Listeners::SendAway(const Connection& connection) {
  // Resets it (connect(2)): after a shutdown() what the peer goes on sending would still be read.
  // gRPC sees its end, and lets go of what it has kept for it.
  const sockaddr nobody = {.sa_family = AF_UNSPEC, .sa_data = {}};
  connect(connection.fd, &nobody, sizeof(nobody));
}

bool Listeners::Welcome(absl::string_view peer) {
  const std::optional<PeerKey> key = ParsePeer(peer);
  if (!key) return true;
  MutexLock lock(&mu_);
  const auto it = connections_.find(*key);
  if (it == connections_.end()) return true;
  it->second.welcome = true;
  it->second.earned_bytes += kBytesOfACall;
  return it->second.trusted;
}

void Listeners::Trust(absl::string_view peer) {
  const std::optional<PeerKey> key = ParsePeer(peer);
  if (!key) return;
  MutexLock lock(&mu_);
  const auto it = connections_.find(*key);
  if (it == connections_.end() || std::exchange(it->second.trusted, true)) return;
  // From here on the kernel suits the buffer to the network again (socket(7), since Linux 5.15).
  const int unlocked = 0;
  if (setsockopt(it->second.fd, SOL_SOCKET, SO_BUF_LOCK, &unlocked, sizeof(unlocked)) == 0) return;
  setsockopt(it->second.fd, SOL_SOCKET, SO_RCVBUF, &kTrustedBuffer, sizeof(kTrustedBuffer));
}

void Listeners::ExpectMuch(absl::string_view peer, bool expected) {
  const std::optional<PeerKey> key = ParsePeer(peer);
  if (!key) return;
  MutexLock lock(&mu_);
  const auto it = connections_.find(*key);
  if (it != connections_.end()) it->second.reads_much = expected;
}

void Listeners::Strike(absl::string_view peer) {
  const std::optional<PeerKey> key = ParsePeer(peer);
  if (!key) return;
  const auto now = Clock::now();
  MutexLock lock(&mu_);
  const auto it = connections_.find(*key);
  if (it == connections_.end()) return;
  Connection& connection = it->second;
  const double seconds = std::chrono::duration<double>(now - connection.struck_at).count();
  connection.strikes = std::max(connection.strikes - seconds * kForgivenEachSecond, 0.0) + 1;
  connection.struck_at = now;
  connection.earned_bytes -= kBytesOfACall;
  const double most = connection.trusted ? kMostStrikesOfTheTrusted : kMostStrikes;
  if (connection.strikes > most) SendAway(connection);
}

}  // namespace tensord::server
