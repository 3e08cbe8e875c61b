#include "tensord/server/rpc/bulk/shared_broker.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/shared_mapping.h"
#include "tensord/server/session/session_table.h"

namespace tensord::server {
namespace {

constexpr int kSweepIntervalMs = 500;

// Sends one byte and the descriptor. If the client has ended or its socket is full, the message is
// lost.
void SendDescriptor(int socket, const sockaddr_un& to, socklen_t to_size, int fd) {
  char byte = 0;
  iovec data = {.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_name = const_cast<sockaddr_un*>(&to);
  message.msg_namelen = to_size;
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace

SharedBroker::SharedBroker(std::function<void()> sweep) : sweep_(std::move(sweep)) {
  Listen();
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  thread_ = std::thread([this] { Run(); });
}

SharedBroker::~SharedBroker() {
  const uint64_t one = 1;
  while (write(stop_fd_, &one, sizeof(one)) < 0) {
  }
  thread_.join();
  close(stop_fd_);
  if (socket_ >= 0) close(socket_);
}

void SharedBroker::Listen() {
  if (SharedMemorySwitchedOff()) return;
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  const std::string name = absl::StrCat(kSharedSocketPrefix, RandomId());
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0) {
    close(fd);
    return;
  }
  socket_ = fd;
  socket_name_ = name;
}

std::string SharedBroker::Offer(std::shared_ptr<SharedRegion> region) {
  std::string secret = RandomId();
  MutexLock lock(&mu_);
  offers_[secret] = std::move(region);
  return secret;
}

void SharedBroker::Withdraw(const std::string& secret) {
  MutexLock lock(&mu_);
  offers_.erase(secret);
}

void SharedBroker::Run() {
  while (true) {
    pollfd waited[] = {{.fd = stop_fd_, .events = POLLIN, .revents = 0},
                       {.fd = socket_, .events = POLLIN, .revents = 0}};
    poll(waited, 2, kSweepIntervalMs);
    if (waited[0].revents != 0) return;
    if (waited[1].revents != 0) Answer();
    sweep_();
  }
}

void SharedBroker::Answer() {
  char secret[kSharedSecretBytes + 1];
  sockaddr_un from = {};
  socklen_t from_size = sizeof(from);
  const ssize_t size = recvfrom(socket_, secret, sizeof(secret), MSG_DONTWAIT,
                                reinterpret_cast<sockaddr*>(&from), &from_size);
  if (size != static_cast<ssize_t>(kSharedSecretBytes) || from_size <= sizeof(sa_family_t)) return;
  std::shared_ptr<SharedRegion> region;
  {
    MutexLock lock(&mu_);
    const auto it = offers_.find(absl::string_view(secret, kSharedSecretBytes));
    if (it == offers_.end()) return;
    region = std::move(it->second);
    offers_.erase(it);
  }
  SendDescriptor(socket_, from, from_size, region->fd());
}

}  // namespace tensord::server
