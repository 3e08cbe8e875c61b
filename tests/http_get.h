// A small HTTP client over a plain socket.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tensord {

// A TCP connection to "127.0.0.1:PORT".
class PlainConnection {
 public:
  explicit PlainConnection(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    uint32_t port = 0;
    (void)absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port);
    sockaddr_in peer = {};
    peer.sin_family = AF_INET;
    peer.sin_port = htons(static_cast<uint16_t>(port));
    peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&peer), sizeof(peer)) == 0;
  }
  ~PlainConnection() { close(fd_); }
  PlainConnection(const PlainConnection&) = delete;
  PlainConnection& operator=(const PlainConnection&) = delete;

  bool connected() const { return connected_; }
  void Send(const std::string& text) { (void)!send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  // Blocks until the server has closed the connection. Returns what it has sent.
  std::string ReadAll() {
    std::string all;
    char buffer[4096];
    for (ssize_t count = 0; (count = recv(fd_, buffer, sizeof(buffer), 0)) > 0;) {
      all.append(buffer, static_cast<size_t>(count));
    }
    return all;
  }

 private:
  const int fd_;
  bool connected_ = false;
};

struct HttpResponse {
  std::string head;  // the status line and the headers
  std::string body;
};

// Sends a request without a body, such as "GET /metrics", and returns the response.
inline HttpResponse HttpRequest(const std::string& address, const std::string& request) {
  PlainConnection connection(address);
  connection.Send(absl::StrCat(request, " HTTP/1.1\r\nHost: ", address, "\r\n\r\n"));
  const std::string all = connection.ReadAll();
  const size_t end = all.find("\r\n\r\n");
  if (end == std::string::npos) return {.head = all};
  return {.head = all.substr(0, end), .body = all.substr(end + 4)};
}

}  // namespace tensord
