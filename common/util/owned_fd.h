// The owner of a file descriptor.
#pragma once

#include <unistd.h>

#include <utility>

namespace tensord {

// Closes the descriptor when it is destroyed, unless Release() was called. -1 means that there is
// no descriptor. Not thread-safe.
class OwnedFd {
 public:
  explicit OwnedFd(int fd = -1) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.Release()) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~OwnedFd() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }
  // Returns the descriptor, which the caller closes.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace tensord
