#include "tensord/server/rpc/auth/listening_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/util/owned_fd.h"

namespace tensord::server {
namespace {

constexpr int kBacklog = 1024;

absl::Status CannotListen(const std::string& address, const std::string& why) {
  return absl::UnavailableError(absl::StrCat("can't listen on ", address, ": ", why));
}

in_port_t& PortOf(sockaddr* address) {
  return address->sa_family == AF_INET ? reinterpret_cast<sockaddr_in*>(address)->sin_port
                                       : reinterpret_cast<sockaddr_in6*>(address)->sin6_port;
}

// Returns the error of a TCP address for which a system call set `error`.
absl::Status CannotListen(const std::string& address, int error) {
  return CannotListen(address, error == EADDRINUSE
                                   ? "another program listens there; choose another port with "
                                     "--listen=HOST:PORT (port 0: any free port)"
                                   : std::string(std::strerror(error)));
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

// Listens at those of the addresses that this machine has, all on the same port: a name such as
// localhost may stand for several addresses. `*port` is in network byte order. If it is 0, sets it
// to a port that is free at the first address. Returns 0, or an errno. If it returns an errno,
// `sockets` is empty.
int BindAll(addrinfo* addresses, in_port_t* port, std::vector<OwnedFd>* sockets) {
  int missing = 0;
  for (addrinfo* each = addresses; each != nullptr; each = each->ai_next) {
    PortOf(each->ai_addr) = *port;
    OwnedFd fd(BindTcp(*each));
    if (fd.get() < 0) {
      missing = errno;
      if (missing == EAFNOSUPPORT || missing == EADDRNOTAVAIL) continue;
      sockets->clear();
      return missing;
    }
    sockaddr_storage at = {};
    socklen_t size = sizeof(at);
    getsockname(fd.get(), reinterpret_cast<sockaddr*>(&at), &size);
    *port = PortOf(reinterpret_cast<sockaddr*>(&at));
    sockets->push_back(std::move(fd));
  }
  return sockets->empty() ? missing : 0;
}

absl::Status ListenTcp(const std::string& address, std::vector<ListeningSocket>* sockets,
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
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  constexpr int kMaxAttempts = 20;
  const in_port_t wanted = PortOf(found->ai_addr);
  in_port_t port = wanted;
  std::vector<OwnedFd> bound_sockets;
  int failure = BindAll(found, &port, &bound_sockets);
  // A port that the system has chosen for the first address may be in use at another address.
  for (int i = 1; failure == EADDRINUSE && wanted == 0 && i < kMaxAttempts; ++i) {
    port = 0;
    failure = BindAll(found, &port, &bound_sockets);
  }
  if (failure != 0) return CannotListen(address, failure);
  for (OwnedFd& each : bound_sockets) sockets->push_back({.fd = each.Release()});
  *bound = absl::StrCat(address.substr(0, colon), ":", ntohs(port));
  return absl::OkStatus();
}

absl::Status ListenUnix(const std::string& path, std::vector<ListeningSocket>* sockets) {
  sockaddr_un at = {};
  at.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(at.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("\"unix:", path, "\": a path of 1 to ",
                                                   sizeof(at.sun_path) - 1, " bytes is needed"));
  }
  path.copy(at.sun_path, sizeof(at.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return CannotListen("unix:" + path, std::strerror(errno));
  // Removes a socket file that an earlier server has left, but not one that a server listens on.
  const auto* generic = reinterpret_cast<const sockaddr*>(&at);
  const bool in_use = connect(fd, generic, sizeof(at)) == 0 || errno == EAGAIN;
  close(fd);
  if (in_use) return CannotListen("unix:" + path, "another server listens there");
  struct stat what = {};
  if (stat(path.c_str(), &what) == 0 && S_ISSOCK(what.st_mode)) unlink(path.c_str());
  const int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  struct stat made = {};
  // With a umask of 0, bind() makes a socket to which all users of this machine may connect. The
  // mode is set before listen(), so no other user can connect in between.
  if (listening < 0 || bind(listening, generic, sizeof(at)) != 0 ||
      stat(path.c_str(), &made) != 0 || chmod(path.c_str(), made.st_mode & 0770) != 0 ||
      listen(listening, kBacklog) != 0) {
    const int why = errno;
    if (listening >= 0) close(listening);
    return CannotListen("unix:" + path, std::strerror(why));
  }
  sockets->push_back({.fd = listening, .unix_path = path});
  return absl::OkStatus();
}

}  // namespace

absl::Status ListenAt(const std::string& address, std::vector<ListeningSocket>* sockets,
                      std::string* bound) {
  *bound = address;
  return absl::StartsWith(address, "unix:") ? ListenUnix(address.substr(5), sockets)
                                            : ListenTcp(address, sockets, bound);
}

}  // namespace tensord::server
