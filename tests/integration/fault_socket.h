// Injects faults and delays into a daemon's devices through its --fault-socket.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <string>

namespace tensord::integration {

// A connection to the daemon's fault socket.
class FaultSocket {
 public:
  explicit FaultSocket(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~FaultSocket() { close(fd_); }

  // Sends an order. Blocks until the order is in force, and returns the daemon's answer.
  std::string Send(const std::string& order) {
    const std::string line = order + "\n";
    if (!connected_ || send(fd_, line.data(), line.size(), MSG_NOSIGNAL) < 0) return "no answer";
    char answer[512];
    const ssize_t count = recv(fd_, answer, sizeof(answer), 0);
    return count <= 0 ? "no answer" : std::string(answer, count);
  }

 private:
  const int fd_;
  bool connected_ = false;
};

}  // namespace tensord::integration
