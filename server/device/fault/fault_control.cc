#include "tensord/server/device/fault/fault_control.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tensord::server {
namespace {

constexpr size_t kMaxLineLength = 1024;

}  // namespace

absl::StatusOr<std::unique_ptr<FaultControl>> FaultControl::Listen(const std::string& path,
                                                                   FaultPlans* plans) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is too long for a socket's path"));
  }
  std::copy(path.begin(), path.end(), address.sun_path);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int stop = eventfd(0, EFD_CLOEXEC);
  if (listener < 0 || stop < 0 || fchmod(listener, 0600) != 0 ||
      bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener, 8) != 0) {
    absl::Status error = absl::ErrnoToStatus(errno, absl::StrCat("can't listen on ", path));
    close(listener);
    close(stop);
    return absl::UnavailableError(error.message());
  }
  return std::unique_ptr<FaultControl>(new FaultControl(path, listener, stop, plans));
}

FaultControl::FaultControl(std::string path, int listener, int stop, FaultPlans* plans)
    : path_(std::move(path)), listener_(listener), stop_(stop), plans_(plans) {
  thread_ = std::thread([this] { Run(); });
}

FaultControl::~FaultControl() {
  const uint64_t one = 1;
  while (write(stop_, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  thread_.join();
  close(listener_);
  close(stop_);
  unlink(path_.c_str());
}

bool FaultControl::AwaitInput(int fd) const {
  pollfd fds[] = {{fd, POLLIN, 0}, {stop_, POLLIN, 0}};
  while (poll(fds, 2, -1) < 0 && errno == EINTR) {
  }
  return fds[1].revents == 0;
}

void FaultControl::Run() {
  while (AwaitInput(listener_)) {
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    Serve(connection);
    close(connection);
  }
}

void FaultControl::Serve(int connection) {
  std::string input;
  char bytes[256];
  while (AwaitInput(connection)) {
    const ssize_t count = read(connection, bytes, sizeof(bytes));
    if (count <= 0 || input.size() > kMaxLineLength) return;
    input.append(bytes, count);
    for (size_t end = input.find('\n'); end != std::string::npos; end = input.find('\n')) {
      const absl::Status taken = plans_->Apply(input.substr(0, end));
      input.erase(0, end + 1);
      const std::string answer = absl::StrCat(taken.ok() ? "ok" : taken.message(), "\n");
      if (send(connection, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return;
    }
  }
}

}  // namespace tensord::server
