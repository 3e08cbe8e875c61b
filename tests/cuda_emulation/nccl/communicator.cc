#include "tensord/tests/cuda_emulation/nccl/communicator.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/nccl/last_error.h"

namespace tensord::nccl_emulation {
namespace {

// Returns a random number that identifies this process. Emulated devices with the same index in two
// processes are different GPUs.
const Secret& ProcessId() {
  static const Secret id = RandomSecret();
  return id;
}

}  // namespace

Communicator::Communicator(const UniqueId& id, int rank, int size, int device)
    : hub_address_(id.address),
      join_{id.secret, ProcessId(), device, rank, size},
      wake_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      thread_([this] { Run(); }) {}

Communicator::~Communicator() { close(wake_fd_); }

ncclResult_t Communicator::state() {
  MutexLock lock(&mu_);
  return state_;
}

void Communicator::Fail(ncclResult_t error, const std::string& text) {
  MutexLock lock(&mu_);
  SetLastError(text);
  if (state_ == ncclSuccess || state_ == ncclInProgress) state_ = error;
}

void Communicator::FailConnection(ncclResult_t error, const std::string& text) {
  Fail(error, text);
  MutexLock lock(&mu_);
  broken_ = error;
  changed_.SignalAll();
}

ncclResult_t Communicator::Start(std::function<ncclResult_t(uint64_t number)> enqueue) {
  MutexLock lock(&mu_);
  if (state_ != ncclSuccess) return state_;
  state_ = ncclInProgress;
  enqueue_ = std::move(enqueue);
  Wake();
  return state_;
}

std::optional<std::string> Communicator::Exchange(uint64_t number, const Operation& op,
                                                  const std::string& input) {
  MutexLock lock(&mu_);
  while (answered_ != number && !Ended()) changed_.Wait(&mu_);
  if (answered_ == number) {
    if (!Ended()) {
      request_ = Pack(op, input);
      Wake();
    }
    while (!reply_.has_value() && !Ended()) changed_.Wait(&mu_);
    if (reply_.has_value()) {
      ++answered_;
      changed_.SignalAll();
      return std::exchange(reply_, std::nullopt);
    }
  }
  while (broken_ == ncclRemoteError && !aborted_) changed_.Wait(&mu_);
  return std::nullopt;
}

void Communicator::Abort() {
  {
    MutexLock lock(&mu_);
    aborted_ = true;
    changed_.SignalAll();
  }
  Wake();
  thread_.join();
  MutexLock lock(&mu_);
  enqueue_ = nullptr;  // breaks a cycle: the function holds a reference to this communicator
}

void Communicator::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

bool Communicator::Poll(int fd, short events) {
  pollfd fds[] = {{wake_fd_, POLLIN, 0}, {fd, events, 0}};
  if (poll(fds, 2, -1) < 0) return false;  // interrupted by a signal
  uint64_t count = 0;
  if (fds[0].revents != 0) {
    [[maybe_unused]] const ssize_t drained = read(wake_fd_, &count, sizeof(count));
  }
  return fds[1].revents != 0;
}

int Communicator::Connect() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const auto* address = reinterpret_cast<const sockaddr*>(&hub_address_);
  int error = connect(fd, address, sizeof(hub_address_)) == 0 ? 0 : errno;
  while (error == EINPROGRESS) {
    const bool done = Poll(fd, POLLOUT);
    socklen_t bytes = sizeof(error);
    if (done) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
    MutexLock lock(&mu_);
    if (aborted_) break;
  }
  if (error == 0) return fd;
  close(fd);
  if (error != EINPROGRESS) {
    FailConnection(ncclRemoteError,
                   absl::StrCat("ncclCommInitRankConfig: rank ", rank(),
                                " can't connect to the root: ", std::strerror(error)));
  }
  return -1;
}

void Communicator::Run() {
  const int fd = Connect();
  if (fd < 0) return;
  FrameSocket socket(fd);
  socket.Queue(FrameKind::kJoin, Pack(join_));
  bool connected = true;
  while (ApplyCommands(&socket)) {
    {
      MutexLock lock(&mu_);
      if (broken_ != ncclSuccess) return;
    }
    if (!connected) {
      FailConnection(ncclRemoteError,
                     absl::StrCat("rank ", rank(), " has lost its connection to the root"));
      return;
    }
    std::vector<Frame> frames;
    if (Poll(fd, socket.events())) {
      const bool written = socket.Write();
      connected = socket.Read(&frames) && written;
    }
    for (const Frame& frame : frames) HandleFrame(frame);
  }
}

bool Communicator::ApplyCommands(FrameSocket* socket) {
  std::function<ncclResult_t(uint64_t number)> enqueue;
  uint64_t number = 0;
  {
    MutexLock lock(&mu_);
    if (aborted_) return false;
    if (request_.has_value()) socket->Queue(FrameKind::kRequest, *request_);
    request_.reset();
    std::swap(enqueue, enqueue_);
    if (enqueue == nullptr) return true;
    number = started_++;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(cuda_emulation::TheOptions().max_delay_us));
  const ncclResult_t enqueued = enqueue(number);
  if (enqueued != ncclSuccess) {
    Fail(enqueued, LastError());
    return true;
  }
  MutexLock lock(&mu_);
  if (state_ == ncclInProgress) state_ = ncclSuccess;
  return true;
}

void Communicator::HandleFrame(const Frame& frame) {
  if (frame.kind == FrameKind::kError) {
    ErrorHead head;
    absl::string_view text;
    if (!Unpack(frame.payload, &head, &text)) return;
    const auto error = static_cast<ncclResult_t>(head.result);
    if (error != ncclRemoteError) cuda_emulation::Report(text);
    FailConnection(error, std::string(text));
    return;
  }
  MutexLock lock(&mu_);
  if (frame.kind == FrameKind::kReady && state_ == ncclInProgress) state_ = ncclSuccess;
  if (frame.kind == FrameKind::kReply) reply_ = frame.payload;
  changed_.SignalAll();
}

}  // namespace tensord::nccl_emulation
