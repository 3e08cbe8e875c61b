#include "tensord/client/internal/shared_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tensord/client/internal/wire.h"
#include "tensord/common/status_macros.h"
#include "tensord/common/stream_copy.h"

namespace tensord::internal {
namespace {

// The server answers from a thread that does nothing else.
constexpr time_t kAnswerSeconds = 2;

// More than this no server asks us to map.
constexpr int64_t kMaxSlotBytes = 64 << 20;
constexpr uint32_t kMaxSlots = 64;

// A descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

// A datagram socket with a name of the kernel's choosing, which takes messages from the server's
// alone; -1 where there is no such server on this host.
int ConnectTo(const std::string& socket_name) {
  sockaddr_un server = {};
  server.sun_family = AF_UNIX;
  if (socket_name.empty() || socket_name.size() >= sizeof(server.sun_path)) return -1;
  std::copy(socket_name.begin(), socket_name.end(), server.sun_path + 1);
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + socket_name.size());
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const sa_family_t family = AF_UNIX;
  const timeval timeout = {.tv_sec = kAnswerSeconds, .tv_usec = 0};
  if (bind(fd, reinterpret_cast<const sockaddr*>(&family), sizeof(family)) != 0 ||
      connect(fd, reinterpret_cast<const sockaddr*>(&server), size) != 0 ||
      setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) != 0 ||
      setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

// The descriptor that the server sends back for the secret, or -1.
int FetchDescriptor(const v1::SharedRing& ring) {
  const Descriptor socket(ConnectTo(ring.socket_name()));
  if (socket.get() < 0) return -1;
  const std::string& secret = ring.secret();
  if (send(socket.get(), secret.data(), secret.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(secret.size())) {
    return -1;
  }
  char byte = 0;
  iovec data = {.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC) != 1) return -1;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    return -1;
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
  return fd;
}

// A file that somebody can still shrink would end this program when it is touched past its end.
bool HasFixedSize(int fd, int64_t size_bytes) {
  struct stat info = {};
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &info) == 0 &&
         info.st_size == size_bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedRing>> SharedRing::Open(v1::TensorService::Stub* stub,
                                                             const std::string& session,
                                                             CallRegistry* calls) {
  std::unique_ptr<SharedRing> ring(new SharedRing(calls));
  ring->stream_ = stub->SharedMemory(ring->call_.context());
  v1::SharedMemoryRequest request;
  request.mutable_open()->set_session(session);
  v1::SharedMemoryResponse response;
  if (!ring->stream_->Write(request) || !ring->stream_->Read(&response) || !response.has_ring()) {
    ring->broken_ = response.response_case() != v1::SharedMemoryResponse::RESPONSE_NOT_SET;
    const grpc::Status status = ring->End();
    return StatusFromCode(status.error_code(), status.error_message(), status.error_details());
  }
  TENSORD_RETURN_IF_ERROR(ring->Map(response.ring()));
  return ring;
}

absl::Status SharedRing::Map(const v1::SharedRing& ring) {
  if (ring.slots() == 0 || ring.slots() > kMaxSlots || ring.slot_bytes() <= 0 ||
      ring.slot_bytes() > kMaxSlotBytes) {
    return absl::InternalError("the server describes a ring that makes no sense");
  }
  const int64_t size_bytes = ring.slots() * ring.slot_bytes();
  const Descriptor file(FetchDescriptor(ring));
  if (file.get() < 0 || !HasFixedSize(file.get(), size_bytes)) {
    return absl::FailedPreconditionError("the server's memory can't be reached from here");
  }
  void* data =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (data == MAP_FAILED) return absl::FailedPreconditionError("shared memory can't be mapped");
  data_ = static_cast<uint8_t*>(data);
  slot_bytes_ = ring.slot_bytes();
  slots_ = ring.slots();
  return absl::OkStatus();
}

SharedRing::~SharedRing() {
  if (stream_ != nullptr) {
    call_.context()->TryCancel();
    stream_->Finish();
  }
  if (data_ != nullptr) munmap(data_, slots_ * slot_bytes_);
}

grpc::Status SharedRing::End() {
  v1::SharedMemoryResponse unread;
  if (broken_) call_.context()->TryCancel();
  while (stream_->Read(&unread)) {  // the status comes behind what is on its way
  }
  const grpc::Status status = stream_->Finish();
  stream_.reset();
  if (!status.ok() && !broken_) return status;
  return grpc::Status(grpc::StatusCode::INTERNAL, "the server ended a transfer before its end");
}

bool SharedRing::SendSlot(uint32_t slot, int64_t bytes) {
  v1::SharedMemoryRequest request;
  request.mutable_slot()->set_slot(slot);
  request.mutable_slot()->set_bytes(bytes);
  return stream_->Write(request);
}

bool SharedRing::ReceiveSlot(uint32_t slot, int64_t most_bytes, int64_t* bytes) {
  v1::SharedMemoryResponse response;
  if (!stream_->Read(&response)) return false;
  *bytes = response.slot().bytes();
  broken_ =
      !response.has_slot() || response.slot().slot() != slot || *bytes < 0 || *bytes > most_bytes;
  return !broken_;
}

grpc::Status SharedRing::Upload(const v1::WriteSpec& spec, absl::Span<const uint8_t> data,
                                const Progress& progress) {
  v1::SharedMemoryRequest request;
  *request.mutable_write() = spec;
  if (!stream_->Write(request)) return End();
  const auto total_bytes = static_cast<int64_t>(data.size());
  int64_t sent_bytes = 0;
  for (uint32_t n = 0; sent_bytes < total_bytes; ++n) {
    int64_t freed = 0;
    if (n >= slots_ && !ReceiveSlot(n % slots_, 0, &freed)) return End();
    const int64_t bytes = std::min(slot_bytes_, total_bytes - sent_bytes);
    std::memcpy(slot(n % slots_), data.data() + sent_bytes, bytes);
    if (!SendSlot(n % slots_, bytes)) return End();
    sent_bytes += bytes;
    if (progress) progress(sent_bytes, total_bytes);
  }
  v1::SharedMemoryResponse response;
  while (stream_->Read(&response)) {
    if (response.has_written()) return grpc::Status::OK;
  }
  return End();
}

grpc::Status SharedRing::Download(const v1::ReadRequest& request, absl::Span<uint8_t> out,
                                  const Progress& progress) {
  v1::SharedMemoryRequest read;
  *read.mutable_read() = request;
  read.mutable_read()->set_limit_bytes(static_cast<int64_t>(out.size()));
  if (!stream_->Write(read)) return End();
  const auto total_bytes = static_cast<int64_t>(out.size());
  int64_t filled_bytes = 0;
  for (uint32_t n = 0; filled_bytes < total_bytes; ++n) {
    const int64_t most_bytes = std::min(slot_bytes_, total_bytes - filled_bytes);
    int64_t bytes = 0;
    if (!ReceiveSlot(n % slots_, most_bytes, &bytes)) return End();
    if (n == 0) call_.SetUnderWay(true);
    StreamCopy(out.data() + filled_bytes, slot(n % slots_), bytes);
    if (!SendSlot(n % slots_, 0)) return End();
    filled_bytes += bytes;
    if (progress) progress(filled_bytes, total_bytes);
  }
  call_.SetUnderWay(false);
  return grpc::Status::OK;
}

}  // namespace tensord::internal
