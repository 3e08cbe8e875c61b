#include "tensord/server/metrics/http_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server::metrics {
namespace {

constexpr int kBacklog = 64;
// If the process has no descriptor for a connection, the server tries again after this time.
constexpr std::chrono::milliseconds kAcceptInterval{100};

absl::Status SystemError(int error) { return absl::UnavailableError(std::strerror(error)); }

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

absl::StatusOr<std::string> BoundAddress(int fd) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  auto* const generic = reinterpret_cast<sockaddr*>(&bound);
  char host[NI_MAXHOST] = {};
  char port[NI_MAXSERV] = {};
  if (getsockname(fd, generic, &size) != 0 ||
      getnameinfo(generic, size, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return SystemError(errno);
  }
  const bool v6 = bound.ss_family == AF_INET6;
  return absl::StrCat(v6 ? "[" : "", host, v6 ? "]" : "", ":", port);
}

// Returns a listening socket for an address in numbers.
absl::StatusOr<int> Listen(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (absl::StartsWith(host, "[")) host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found);
  if (error != 0) return absl::UnavailableError(gai_strerror(error));
  const std::unique_ptr<addrinfo, FreeAddresses> list(found);
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return SystemError(errno);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, kBacklog) != 0) {
    const absl::Status failed = SystemError(errno);
    close(fd);
    return failed;
  }
  return fd;
}

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

std::string Response(absl::string_view status, absl::string_view content_type,
                     absl::string_view body) {
  return absl::StrCat("HTTP/1.1 ", status, "\r\nContent-Type: ", content_type,
                      "\r\nContent-Length: ", body.size(), "\r\nConnection: close\r\n\r\n", body);
}

std::string ErrorResponse(absl::string_view status) {
  return Response(status, "text/plain", absl::StrCat(status, "\n"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address,
                                                              Document document) {
  TENSORD_ASSIGN_OR_RETURN(const int listener, Listen(address));
  const int stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  absl::StatusOr<std::string> bound = stop_fd < 0 ? SystemError(errno) : BoundAddress(listener);
  if (!bound.ok()) {
    close(listener);
    if (stop_fd >= 0) close(stop_fd);
    return bound.status();
  }
  return std::unique_ptr<HttpServer>(
      new HttpServer(listener, stop_fd, *std::move(bound), std::move(document)));
}

HttpServer::HttpServer(int listener, int stop_fd, std::string address, Document document)
    : listener_(listener),
      stop_fd_(stop_fd),
      address_(std::move(address)),
      document_(std::move(document)),
      thread_([this] { Run(); }) {}

HttpServer::~HttpServer() {
  const uint64_t one = 1;
  (void)!write(stop_fd_, &one, sizeof(one));
  thread_.join();
  for (const Connection& connection : connections_) close(connection.fd);
  close(listener_);
  close(stop_fd_);
}

void HttpServer::Run() {
  while (Wait()) {
    MakeDocument();
    const Clock::time_point now = Clock::now();
    for (auto it = connections_.begin(); it != connections_.end();) {
      if (now < it->deadline && Continue(*it)) {
        ++it;
      } else {
        close(it->fd);
        it = connections_.erase(it);
      }
    }
  }
}

bool HttpServer::Wait() {
  std::vector<pollfd> events = {{stop_fd_, POLLIN, 0}, {listener_, POLLIN, 0}};
  const Clock::time_point now = Clock::now();
  Clock::time_point wake = Clock::time_point::max();
  if (now < next_accept_) {
    events[1].fd = -1;  // poll() ignores it
    wake = next_accept_;
  }
  for (const Connection& connection : connections_) {
    const bool waits = connection.state == Connection::State::kWaiting;
    const bool sends = connection.state == Connection::State::kSending;
    events.push_back({waits ? -1 : connection.fd, static_cast<short>(sends ? POLLOUT : POLLIN), 0});
    wake = std::min({wake, connection.deadline, waits ? next_document_ : connection.deadline});
  }
  int timeout_ms = -1;
  if (wake != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(wake - now).count();
    timeout_ms = static_cast<int>(std::max<int64_t>(left, 0));
  }
  poll(events.data(), events.size(), timeout_ms);
  if ((events[0].revents & POLLIN) != 0) return false;
  if ((events[1].revents & POLLIN) != 0) Accept();
  return true;
}

void HttpServer::Accept() {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    if (!WouldBlock()) next_accept_ = Clock::now() + kAcceptInterval;
    return;
  }
  if (connections_.size() == kMaxConnections) {
    close(connections_.front().fd);
    connections_.pop_front();
  }
  connections_.push_back({.fd = fd, .deadline = Clock::now() + kMaxConnectionTime});
}

bool HttpServer::Continue(Connection& connection) {
  if (connection.state == Connection::State::kReading && !Read(connection)) return false;
  if (connection.state == Connection::State::kSending && !Send(connection)) return false;
  if (connection.state != Connection::State::kEnding) return true;
  char ignored[4096];
  const ssize_t count = recv(connection.fd, ignored, sizeof(ignored), 0);
  return count > 0 || (count < 0 && WouldBlock());
}

bool HttpServer::Read(Connection& connection) {
  char buffer[4096];
  const ssize_t count = recv(connection.fd, buffer, sizeof(buffer), 0);
  if (count <= 0) return count < 0 && WouldBlock();
  connection.request.append(buffer, static_cast<size_t>(count));
  if (absl::StrContains(connection.request, "\r\n\r\n")) {
    Answer(connection);
  } else if (connection.request.size() > kMaxRequestBytes) {
    connection.response = ErrorResponse("431 Request Header Fields Too Large");
    connection.state = Connection::State::kSending;
  }
  return true;
}

void HttpServer::Answer(Connection& connection) {
  const std::vector<absl::string_view> words = absl::StrSplit(
      absl::string_view(connection.request).substr(0, connection.request.find("\r\n")), ' ');
  connection.state = Connection::State::kSending;
  if (words.size() != 3 || !absl::StartsWith(words[2], "HTTP/1.")) {
    connection.response = ErrorResponse("400 Bad Request");
  } else if (words[0] != "GET") {
    connection.response = ErrorResponse("405 Method Not Allowed");
  } else if (words[1].substr(0, words[1].find('?')) != document_.path) {
    connection.response = ErrorResponse("404 Not Found");
  } else {
    connection.state = Connection::State::kWaiting;
  }
}

void HttpServer::MakeDocument() {
  if (Clock::now() < next_document_) return;
  std::string response;
  for (Connection& connection : connections_) {
    if (connection.state != Connection::State::kWaiting) continue;
    if (response.empty()) response = Response("200 OK", document_.content_type, document_.make());
    connection.response = response;
    connection.state = Connection::State::kSending;
  }
  if (!response.empty()) next_document_ = Clock::now() + kMinInterval;
}

bool HttpServer::Send(Connection& connection) {
  while (connection.sent_bytes < connection.response.size()) {
    const ssize_t count = send(connection.fd, connection.response.data() + connection.sent_bytes,
                               connection.response.size() - connection.sent_bytes, MSG_NOSIGNAL);
    if (count < 0) return WouldBlock();
    connection.sent_bytes += static_cast<size_t>(count);
  }
  shutdown(connection.fd, SHUT_WR);
  connection.state = Connection::State::kEnding;
  return true;
}

}  // namespace tensord::server::metrics
