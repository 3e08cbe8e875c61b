#include "tensord/common/util/shared_mapping.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/vfs.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace tensord {
namespace {

// The time limit for the server's answer, which a dedicated thread of the server sends.
constexpr time_t kAnswerSeconds = 2;

// The limits of an offer. No server offers a larger ring.
constexpr int64_t kMaxSlotBytes = 64 << 20;
constexpr uint32_t kMaxSlots = 64;

bool IsHex(absl::string_view text, size_t size) {
  return text.size() == size && std::all_of(text.begin(), text.end(), absl::ascii_isxdigit);
}

// Returns a datagram socket that receives messages only from the server's socket. The kernel
// chooses its name. Returns none if this host has no such server.
OwnedFd ConnectTo(const std::string& socket_name) {
  sockaddr_un server = {};
  server.sun_family = AF_UNIX;
  std::copy(socket_name.begin(), socket_name.end(), server.sun_path + 1);
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + socket_name.size());
  OwnedFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const sa_family_t family = AF_UNIX;
  const timeval timeout = {.tv_sec = kAnswerSeconds, .tv_usec = 0};
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&family), sizeof(family)) != 0 ||
      connect(fd.get(), reinterpret_cast<const sockaddr*>(&server), size) != 0 ||
      setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) != 0 ||
      setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) != 0) {
    return OwnedFd();
  }
  return fd;
}

// Returns the last descriptor in the message, or none. Closes any others.
OwnedFd TakeDescriptor(msghdr* message) {
  OwnedFd taken;
  for (cmsghdr* header = CMSG_FIRSTHDR(message); header != nullptr;
       header = CMSG_NXTHDR(message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      taken = OwnedFd(fd);
    }
  }
  return taken;
}

// Sends the secret to the server, and returns the descriptor that it sends back, or none.
OwnedFd ReceiveDescriptor(const SharedMapping::Offer& offer) {
  // Sends the secret only to sockets of tensord servers, whatever the offer says.
  absl::string_view name = offer.socket_name;
  if (!absl::ConsumePrefix(&name, kSharedSocketPrefix) || !IsHex(name, kSharedSecretBytes) ||
      !IsHex(offer.secret, kSharedSecretBytes)) {
    return OwnedFd();
  }
  const OwnedFd socket = ConnectTo(offer.socket_name);
  if (send(socket.get(), offer.secret.data(), offer.secret.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(offer.secret.size())) {
    return OwnedFd();
  }
  char byte = 0;
  iovec data = {.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC) < 0) return OwnedFd();
  return TakeDescriptor(&message);
}

// Returns whether an access to the mapped file can't raise SIGBUS. It could if another process
// shrank the file, or if the file had huge pages and the host ran out of them.
bool IsSafeToMap(int fd, int64_t size_bytes) {
  struct stat info = {};
  struct statfs system = {};
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &info) == 0 &&
         info.st_size == size_bytes && fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC;
}

}  // namespace

bool SharedMemorySwitchedOff() {
  const char* value = std::getenv("TENSORD_SHARED_MEMORY");
  if (value == nullptr) return false;
  const std::string word = absl::AsciiStrToLower(value);
  return word == "0" || word == "off" || word == "false" || word == "no";
}

absl::StatusOr<std::unique_ptr<SharedMapping>> SharedMapping::Map(const Offer& offer, Access access,
                                                                  int64_t max_bytes) {
  const bool valid = offer.slots > 0 && offer.slots <= kMaxSlots && offer.slot_bytes > 0 &&
                     offer.slot_bytes <= kMaxSlotBytes &&
                     offer.slots * offer.slot_bytes <= max_bytes;
  if (!valid) return absl::InternalError("the server offers a ring with invalid sizes");
  const int64_t size_bytes = offer.slots * offer.slot_bytes;
  OwnedFd file = ReceiveDescriptor(offer);
  if (file.get() < 0 || !IsSafeToMap(file.get(), size_bytes)) {
    return absl::FailedPreconditionError("this process can't get the server's shared memory");
  }
  const int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  void* data = mmap(nullptr, size_bytes, protection, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (data == MAP_FAILED) return absl::FailedPreconditionError("shared memory can't be mapped");
  return std::unique_ptr<SharedMapping>(new SharedMapping(
      std::move(file), static_cast<uint8_t*>(data), offer.slot_bytes, offer.slots));
}

SharedMapping::~SharedMapping() { munmap(data_, slots_ * slot_bytes_); }

bool SharedMapping::withdrawn() const {
  std::atomic_thread_fence(std::memory_order_acquire);  // after the reads of the slots
  struct stat info = {};
  return fstat(file_.get(), &info) != 0 || (info.st_mode & 0777) == kWithdrawnMode;
}

}  // namespace tensord
