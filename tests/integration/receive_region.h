// Receives a region of shared memory from the daemon, as a client does.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tensord::integration {

// Returns the descriptor that the daemon sends for `secret`. If none arrives within
// `wait_milliseconds`, returns -1. The caller closes the descriptor.
inline int ReceiveRegion(const std::string& socket_name, const std::string& secret,
                         int64_t wait_milliseconds = 300) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::copy(socket_name.begin(), socket_name.end(), address.sun_path + 1);
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const sa_family_t family = AF_UNIX;
  const timeval timeout = {.tv_sec = wait_milliseconds / 1000,
                           .tv_usec = wait_milliseconds % 1000 * 1000};
  EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&family), sizeof(family)), 0);
  EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)), 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address),
                    offsetof(sockaddr_un, sun_path) + 1 + socket_name.size()),
            0);
  EXPECT_EQ(send(fd, secret.data(), secret.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(secret.size()));
  char byte = 0;
  iovec data = {.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  int received = -1;
  if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&message) != nullptr) {
    std::copy_n(CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int),
                reinterpret_cast<unsigned char*>(&received));
  }
  close(fd);
  return received;
}

}  // namespace tensord::integration
