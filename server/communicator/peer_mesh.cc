#include "tensord/server/communicator/peer_mesh.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/common/util/utf8.h"

namespace tensord::server {
namespace {

// The limit of words of one peer that wait for Exchange(). If this member still waits for a third
// member, a peer may have finished the exchange and sent its next word. The peer can't send a
// further word before it has this member's next one.
constexpr size_t kMaxWords = 2;
// The limit of the error in a leave frame.
constexpr size_t kMaxLeaveBytes = 1024;

// The limit of reads that drain a connection before it is closed.
constexpr int kMaxDrainReads = 4096;

bool MayTryLater(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

PeerMesh::PeerMesh(int rank, int size, std::chrono::milliseconds timeout, MemberNames names)
    : rank_(rank),
      timeout_(timeout),
      names_(std::move(names)),
      wake_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      peers_(size) {}

PeerMesh::~PeerMesh() {
  for (const Peer& peer : peers_) {
    if (peer.fd >= 0) close(peer.fd);
  }
  close(wake_fd_);
}

void PeerMesh::Adopt(int peer, int fd) { peers_[peer].fd = fd; }

void PeerMesh::Wake() {
  const uint64_t one = 1;
  // The write fails only if the counter is full. Then the eventfd is readable already.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

void PeerMesh::Cancel(absl::Status status) {
  {
    MutexLock lock(&mu_);
    if (cancelled_.ok()) cancelled_ = std::move(status);
  }
  Wake();
}

absl::Status PeerMesh::Poll(std::vector<pollfd>* fds, Clock::time_point deadline) {
  fds->push_back({wake_fd_, POLLIN, 0});
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  const int timeout = static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
  const int ready = poll(fds->data(), fds->size(), timeout);
  const bool woken = ready > 0 && fds->back().revents != 0;
  fds->pop_back();
  if (ready <= 0) {
    for (pollfd& fd : *fds) fd.revents = 0;
  }
  if (woken) {
    uint64_t count;
    [[maybe_unused]] const ssize_t drained = read(wake_fd_, &count, sizeof(count));
    woken_ = true;
  }
  MutexLock lock(&mu_);
  return cancelled_;
}

absl::Status PeerMesh::Watch() {
  TENSORD_RETURN_IF_ERROR(error_);
  expecting_ = false;
  while (!woken_) {
    for (int rank = 0; rank < size(); ++rank) {
      if (peers_[rank].disconnected) return Fail(DisconnectError(rank), kLeftBetweenOperations);
    }
    TENSORD_RETURN_IF_ERROR(Progress(Clock::now() + std::chrono::hours(1)));
  }
  woken_ = false;
  return absl::OkStatus();
}

absl::Status PeerMesh::WatchFor(std::chrono::milliseconds pause) {
  TENSORD_RETURN_IF_ERROR(error_);
  TENSORD_RETURN_IF_ERROR(Progress(Clock::now() + pause));
  for (int rank = 0; rank < size(); ++rank) {
    if (peers_[rank].disconnected) return Fail(DisconnectError(rank));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> PeerMesh::Exchange(absl::string_view word) {
  TENSORD_RETURN_IF_ERROR(error_);
  const Clock::time_point deadline = Clock::now() + timeout_;
  int num_sent = 0;
  expecting_ = true;
  for (int rank = 0; rank < size(); ++rank) {
    Peer& peer = peers_[rank];
    if (rank == rank_) continue;
    if (peer.disconnected && peer.words.empty()) return Fail(DisconnectError(rank));
    if (peer.disconnected) {
      ++num_sent;  // the peer's word has arrived, and the peer needs none from this member
      continue;
    }
    Outgoing out{{kWord, 0, 0, word.size()}, nullptr, 0, &num_sent, std::string(word)};
    peer.sends.push_back(std::move(out));
    TENSORD_RETURN_IF_ERROR(Flush(rank));
  }
  std::vector<int> missing;
  for (;;) {
    missing.clear();
    for (int rank = 0; rank < size(); ++rank) {
      if (rank == rank_ || !peers_[rank].words.empty()) continue;
      if (peers_[rank].disconnected) return Fail(DisconnectError(rank));
      missing.push_back(rank);
    }
    if (missing.empty() && num_sent >= size() - 1) break;
    if (Clock::now() >= deadline) {
      return Fail(TimeoutError(missing.empty() ? "the network" : names_.Describe(missing)));
    }
    TENSORD_RETURN_IF_ERROR(Progress(deadline));
  }
  std::vector<std::string> words(size());
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == rank_) {
      words[rank] = std::string(word);
    } else {
      words[rank] = std::move(peers_[rank].words.front());
      peers_[rank].words.pop_front();
    }
  }
  return words;
}

void PeerMesh::Send(int rank, uint64_t slot, const void* data, size_t bytes, int* done) {
  if (!error_.ok()) return;
  peers_[rank].sends.push_back({{kData, 0, slot, bytes}, data, 0, done, {}});
  if (peers_[rank].disconnected) {
    Fail(DisconnectError(rank)).IgnoreError();
  } else {
    Flush(rank).IgnoreError();
  }
}

void PeerMesh::Receive(int rank, uint64_t slot, void* data, size_t bytes, int* done) {
  if (!error_.ok()) return;
  Peer& peer = peers_[rank];
  peer.receives.push_back({slot, data, bytes, done});
  peer.parked = false;
  if (peer.disconnected) Fail(DisconnectError(rank)).IgnoreError();
}

absl::Status PeerMesh::Await(const int* done) {
  last_transfer_ = Clock::now();
  while (error_.ok() && *done <= 0) {
    if (Clock::now() >= last_transfer_ + timeout_) {
      std::vector<int> awaited;
      for (int rank = 0; rank < size(); ++rank) {
        const Peer& peer = peers_[rank];
        if (!peer.receives.empty() || !peer.sends.empty()) awaited.push_back(rank);
      }
      return Fail(TimeoutError(absl::StrCat(names_.Describe(awaited), " to continue")));
    }
    Progress(last_transfer_ + timeout_).IgnoreError();
  }
  return error_;
}

absl::Status PeerMesh::Progress(Clock::time_point deadline) {
  TENSORD_RETURN_IF_ERROR(error_);
  fds_.clear();
  fd_ranks_.clear();
  for (int rank = 0; rank < size(); ++rank) {
    const Peer& peer = peers_[rank];
    if (peer.fd < 0) continue;
    const int events = (peer.parked ? 0 : POLLIN) | (peer.sends.empty() ? 0 : POLLOUT);
    if (events == 0) continue;
    fds_.push_back({peer.fd, static_cast<short>(events), 0});
    fd_ranks_.push_back(rank);
  }
  const absl::Status cancelled = Poll(&fds_, deadline);
  if (!cancelled.ok()) return error_ = cancelled;
  for (size_t i = 0; i < fds_.size(); ++i) {
    const int rank = fd_ranks_[i];
    if ((fds_[i].revents & POLLOUT) != 0) TENSORD_RETURN_IF_ERROR(Flush(rank));
    if ((fds_[i].revents & ~POLLOUT) != 0) TENSORD_RETURN_IF_ERROR(ReceiveFrames(rank));
  }
  return absl::OkStatus();
}

absl::Status PeerMesh::Flush(int rank) {
  Peer& peer = peers_[rank];
  while (!peer.sends.empty() && peer.fd >= 0) {
    Outgoing& out = peer.sends.front();
    const char* content =
        out.data == nullptr ? out.owned.data() : static_cast<const char*>(out.data);
    const size_t total = sizeof(Frame) + out.frame.bytes;
    const size_t of_head = std::min(out.sent, sizeof(Frame));
    const size_t of_content = out.sent - of_head;
    iovec parts[2] = {{reinterpret_cast<char*>(&out.frame) + of_head, sizeof(Frame) - of_head},
                      {const_cast<char*>(content) + of_content,
                       static_cast<size_t>(out.frame.bytes) - of_content}};
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t sent = sendmsg(peer.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (MayTryLater(errno)) return absl::OkStatus();
      // The peer may have sent a leave frame before it closed the connection.
      if (!peer.parked) return ReceiveFrames(rank);
      return HandleDisconnect(rank, absl::StrCat("was lost: ", strerror(errno)));
    }
    last_transfer_ = Clock::now();
    out.sent += sent;
    if (out.sent < total) continue;
    if (out.done != nullptr) ++*out.done;
    peer.sends.pop_front();
  }
  return absl::OkStatus();
}

absl::Status PeerMesh::ReceiveFrames(int rank) {
  Peer& peer = peers_[rank];
  while (peer.fd >= 0 && !peer.parked) {
    TENSORD_ASSIGN_OR_RETURN(const bool whole, ReceiveFrame(&peer, rank));
    if (!whole) break;
    TENSORD_RETURN_IF_ERROR(EndFrame(&peer, rank));
  }
  return error_;
}

absl::StatusOr<bool> PeerMesh::ReceiveFrame(Peer* peer, int rank) {
  while (peer->head_bytes < sizeof(Frame)) {
    TENSORD_ASSIGN_OR_RETURN(
        const size_t count,
        ReadSome(peer, rank, reinterpret_cast<char*>(&peer->frame) + peer->head_bytes,
                 sizeof(Frame) - peer->head_bytes));
    if (count == 0) return false;
    peer->head_bytes += count;
  }
  if (peer->content_bytes == 0) {
    TENSORD_ASSIGN_OR_RETURN(const bool begun, BeginFrame(peer, rank));
    if (!begun) return false;
  }
  char* into = peer->frame.kind == kData ? static_cast<char*>(peer->receives.front().data)
                                         : peer->content.data();
  while (peer->content_bytes < peer->frame.bytes) {
    TENSORD_ASSIGN_OR_RETURN(const size_t count, ReadSome(peer, rank, into + peer->content_bytes,
                                                          peer->frame.bytes - peer->content_bytes));
    if (count == 0) return false;
    peer->content_bytes += count;
  }
  return true;
}

absl::StatusOr<bool> PeerMesh::BeginFrame(Peer* peer, int rank) {
  const Frame& frame = peer->frame;
  switch (frame.kind) {
    case kWord:
    case kLeave:
      if (frame.bytes > kMaxWordBytes) return Reject(rank, "a message that is too long");
      if (frame.kind == kWord && peer->words.size() >= kMaxWords) {
        return Reject(rank, "too many messages");
      }
      peer->content.resize(frame.bytes);
      return true;
    case kData: {
      if (peer->receives.empty()) {
        if (!expecting_) return Reject(rank, "elements outside of an operation");
        peer->parked = true;
        return false;
      }
      const Incoming& wanted = peer->receives.front();
      if (frame.slot != wanted.slot || frame.bytes != wanted.bytes) {
        return Reject(rank,
                      absl::StrCat(frame.bytes, " bytes of elements instead of ", wanted.bytes));
      }
      return true;
    }
    default:
      return Reject(rank, "an unknown frame");
  }
}

absl::Status PeerMesh::EndFrame(Peer* peer, int rank) {
  peer->head_bytes = 0;
  peer->content_bytes = 0;
  switch (peer->frame.kind) {
    case kWord:
      peer->words.push_back(std::move(peer->content));
      return absl::OkStatus();
    case kData:
      ++*peer->receives.front().done;
      peer->receives.pop_front();
      return absl::OkStatus();
    default:
      break;
  }
  const auto code = static_cast<absl::StatusCode>(peer->frame.code);
  if (peer->frame.code == 0) return HandleDisconnect(rank, "has left it");
  if (code != absl::StatusCode::kAborted && code != absl::StatusCode::kDeadlineExceeded) {
    return Reject(rank, "an unknown error code");
  }
  absl::Status error(code, peer->content);
  if (peer->frame.slot != kLeftBetweenOperations) return Fail(std::move(error));
  peer->leave_error = std::move(error);
  return HandleDisconnect(rank, "has left it");
}

absl::StatusOr<size_t> PeerMesh::ReadSome(Peer* peer, int rank, void* data, size_t bytes) {
  for (;;) {
    const ssize_t count = recv(peer->fd, data, bytes, MSG_DONTWAIT);
    if (count > 0) {
      last_transfer_ = Clock::now();
      return static_cast<size_t>(count);
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && MayTryLater(errno)) return size_t{0};
    TENSORD_RETURN_IF_ERROR(HandleDisconnect(
        rank, count == 0 ? "has gone" : absl::StrCat("was lost: ", strerror(errno))));
    return size_t{0};
  }
}

absl::Status PeerMesh::HandleDisconnect(int rank, absl::string_view reason) {
  Peer& peer = peers_[rank];
  if (peer.disconnected) return error_;
  close(peer.fd);
  peer.fd = -1;
  peer.disconnected = true;
  peer.disconnect_reason = std::string(reason);
  if (!peer.sends.empty() || !peer.receives.empty() || peer.head_bytes != 0) {
    return Fail(DisconnectError(rank));
  }
  return absl::OkStatus();
}

absl::Status PeerMesh::DisconnectError(int rank) const {
  if (!peers_[rank].leave_error.ok()) return peers_[rank].leave_error;
  return absl::AbortedError(absl::StrCat(names_.Describe(rank), " of the group ",
                                         peers_[rank].disconnect_reason,
                                         "; make another group to continue"));
}

absl::Status PeerMesh::TimeoutError(const std::string& what) const {
  return absl::DeadlineExceededError(absl::StrCat(names_.Describe(rank_), " waited ",
                                                  timeout_.count(), " ms for ", what,
                                                  "; make another group to continue"));
}

absl::Status PeerMesh::Reject(int rank, absl::string_view what) {
  return Fail(absl::AbortedError(absl::StrCat(names_.Describe(rank), " of the group sent ", what,
                                              "; make another group to continue")));
}

absl::Status PeerMesh::Fail(absl::Status status, LeaveTime time) {
  if (!error_.ok()) return error_;
  error_ = std::move(status);
  Leave(error_, time);
  return error_;
}

void PeerMesh::Leave(const absl::Status& why) { Leave(why, kLeftInOperation); }

void PeerMesh::Leave(const absl::Status& why, LeaveTime time) {
  if (error_.ok()) error_ = absl::AbortedError("this member has left its group");
  const bool failed = absl::IsAborted(why) || absl::IsDeadlineExceeded(why);
  const std::string message = failed ? ToUtf8(why.message(), kMaxLeaveBytes) : "";
  const uint32_t code = failed ? static_cast<uint32_t>(why.code()) : 0;
  for (Peer& peer : peers_) {
    peer.receives.clear();
    if (peer.fd < 0) continue;
    // Sends the leave frame only if nothing else is queued. Doesn't wait for room in the socket.
    if (peer.sends.empty()) {
      Frame frame{kLeave, code, time, message.size()};
      iovec parts[2] = {{&frame, sizeof(frame)},
                        {const_cast<char*>(message.data()), message.size()}};
      msghdr leave = {};
      leave.msg_iov = parts;
      leave.msg_iovlen = 2;
      [[maybe_unused]] const ssize_t sent = sendmsg(peer.fd, &leave, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    peer.sends.clear();
    // Drains the connection: closing it with unread bytes would reset it, and the leave frame might
    // be lost.
    char unread[4096];
    for (int i = 0; i < kMaxDrainReads && recv(peer.fd, unread, sizeof(unread), MSG_DONTWAIT) > 0;)
      ++i;
    close(peer.fd);
    peer.fd = -1;
  }
}

}  // namespace tensord::server
