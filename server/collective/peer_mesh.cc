#include "tensord/server/collective/peer_mesh.h"

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

namespace tensord::server {
namespace {

// A member that has heard everybody may say its next word while another still waits for a third: it
// can't be further ahead, as that takes the other's next word.
constexpr size_t kMaxWords = 2;
// What a farewell says, at most.
constexpr size_t kMaxFarewellBytes = 1024;

// Buffers of a connection that are emptied before it is closed.
constexpr int kMaxUnread = 4096;

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
  // Fails only where the count is full, and then it is readable.
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
  TENSORD_RETURN_IF_ERROR(broken_);
  expecting_ = false;
  while (!woken_) {
    for (int rank = 0; rank < size(); ++rank) {
      if (peers_[rank].gone) return Break(Gone(rank));
    }
    TENSORD_RETURN_IF_ERROR(Progress(Clock::now() + std::chrono::hours(1)));
  }
  woken_ = false;
  return absl::OkStatus();
}

absl::Status PeerMesh::WatchFor(std::chrono::milliseconds pause) {
  TENSORD_RETURN_IF_ERROR(broken_);
  TENSORD_RETURN_IF_ERROR(Progress(Clock::now() + pause));
  for (int rank = 0; rank < size(); ++rank) {
    if (peers_[rank].gone) return Break(Gone(rank));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> PeerMesh::Exchange(absl::string_view word) {
  TENSORD_RETURN_IF_ERROR(broken_);
  const Clock::time_point deadline = Clock::now() + timeout_;
  int told = 0;
  expecting_ = true;
  for (int rank = 0; rank < size(); ++rank) {
    Peer& peer = peers_[rank];
    if (rank == rank_) continue;
    if (peer.gone && peer.words.empty()) return Break(Gone(rank));
    if (peer.gone) {
      ++told;  // it has said its part and needs no more of ours
      continue;
    }
    Outgoing out{{kWord, 0, 0, word.size()}, nullptr, 0, &told, std::string(word)};
    peer.sends.push_back(std::move(out));
    TENSORD_RETURN_IF_ERROR(Flush(rank));
  }
  std::vector<int> missing;
  for (;;) {
    missing.clear();
    for (int rank = 0; rank < size(); ++rank) {
      if (rank == rank_ || !peers_[rank].words.empty()) continue;
      if (peers_[rank].gone) return Break(Gone(rank));
      missing.push_back(rank);
    }
    if (missing.empty() && told >= size() - 1) break;
    if (Clock::now() >= deadline) {
      return Break(Late(missing.empty() ? "the network" : names_.Who(missing)));
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
  if (!broken_.ok()) return;
  peers_[rank].sends.push_back({{kData, 0, slot, bytes}, data, 0, done, {}});
  if (peers_[rank].gone) {
    Break(Gone(rank)).IgnoreError();
  } else {
    Flush(rank).IgnoreError();
  }
}

void PeerMesh::Receive(int rank, uint64_t slot, void* data, size_t bytes, int* done) {
  if (!broken_.ok()) return;
  Peer& peer = peers_[rank];
  peer.receives.push_back({slot, data, bytes, done});
  peer.parked = false;
  if (peer.gone) Break(Gone(rank)).IgnoreError();
}

absl::Status PeerMesh::Await(const int* done) {
  moved_ = Clock::now();
  while (broken_.ok() && *done <= 0) {
    if (Clock::now() >= moved_ + timeout_) {
      std::vector<int> awaited;
      for (int rank = 0; rank < size(); ++rank) {
        const Peer& peer = peers_[rank];
        if (!peer.receives.empty() || !peer.sends.empty()) awaited.push_back(rank);
      }
      return Break(Late(absl::StrCat(names_.Who(awaited), " to go on")));
    }
    Progress(moved_ + timeout_).IgnoreError();
  }
  return broken_;
}

absl::Status PeerMesh::Progress(Clock::time_point deadline) {
  TENSORD_RETURN_IF_ERROR(broken_);
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
  if (!cancelled.ok()) return broken_ = cancelled;
  for (size_t i = 0; i < fds_.size(); ++i) {
    const int rank = fd_ranks_[i];
    if ((fds_[i].revents & POLLOUT) != 0) TENSORD_RETURN_IF_ERROR(Flush(rank));
    if ((fds_[i].revents & ~POLLOUT) != 0) TENSORD_RETURN_IF_ERROR(TakeIn(rank));
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
      // What it has said before it went is still to be read.
      return TakeIn(rank);
    }
    moved_ = Clock::now();
    out.sent += sent;
    if (out.sent < total) continue;
    if (out.done != nullptr) ++*out.done;
    peer.sends.pop_front();
  }
  return absl::OkStatus();
}

absl::Status PeerMesh::TakeIn(int rank) {
  Peer& peer = peers_[rank];
  while (peer.fd >= 0 && !peer.parked) {
    TENSORD_ASSIGN_OR_RETURN(const bool whole, TakeFrame(&peer, rank));
    if (!whole) break;
    TENSORD_RETURN_IF_ERROR(EndFrame(&peer, rank));
  }
  return broken_;
}

absl::StatusOr<bool> PeerMesh::TakeFrame(Peer* peer, int rank) {
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
    case kGoodbye:
      if (frame.bytes > kMaxWordBytes) return Nonsense(rank, "too long a word");
      if (frame.kind == kWord && peer->words.size() >= kMaxWords) {
        return Nonsense(rank, "too many words at once");
      }
      peer->content.resize(frame.bytes);
      return true;
    case kData: {
      if (peer->receives.empty()) {
        if (!expecting_) return Nonsense(rank, "elements that nobody asked for");
        peer->parked = true;
        return false;
      }
      const Incoming& wanted = peer->receives.front();
      if (frame.slot != wanted.slot || frame.bytes != wanted.bytes) {
        return Nonsense(rank, absl::StrCat(frame.bytes, " bytes of elements where ", wanted.bytes,
                                           " were due"));
      }
      return true;
    }
    default:
      return Nonsense(rank, "something else");
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
  if (peer->frame.code == 0) return Lose(rank, "has left it");
  if (code != absl::StatusCode::kAborted && code != absl::StatusCode::kDeadlineExceeded) {
    return Nonsense(rank, "an unknown farewell");
  }
  return Break(absl::Status(code, peer->content));
}

absl::StatusOr<size_t> PeerMesh::ReadSome(Peer* peer, int rank, void* data, size_t bytes) {
  for (;;) {
    const ssize_t count = recv(peer->fd, data, bytes, MSG_DONTWAIT);
    if (count > 0) {
      moved_ = Clock::now();
      return static_cast<size_t>(count);
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && MayTryLater(errno)) return size_t{0};
    TENSORD_RETURN_IF_ERROR(
        Lose(rank, count == 0 ? "has gone" : absl::StrCat("was lost: ", strerror(errno))));
    return size_t{0};
  }
}

absl::Status PeerMesh::Lose(int rank, absl::string_view how) {
  Peer& peer = peers_[rank];
  if (peer.gone) return broken_;
  close(peer.fd);
  peer.fd = -1;
  peer.gone = true;
  peer.farewell = std::string(how);
  if (!peer.sends.empty() || !peer.receives.empty() || peer.head_bytes != 0) {
    return Break(Gone(rank));
  }
  return absl::OkStatus();
}

absl::Status PeerMesh::Gone(int rank) const {
  return absl::AbortedError(absl::StrCat(names_.Who(rank), " of the group ", peers_[rank].farewell,
                                         "; make another group to go on"));
}

absl::Status PeerMesh::Late(const std::string& what) const {
  return absl::DeadlineExceededError(absl::StrCat(names_.Who(rank_), " waited ", timeout_.count(),
                                                  " ms for ", what,
                                                  "; make another group to go on"));
}

absl::Status PeerMesh::Nonsense(int rank, absl::string_view what) {
  return Break(absl::AbortedError(absl::StrCat(names_.Who(rank), " of the group sent ", what,
                                               "; make another group to go on")));
}

absl::Status PeerMesh::Break(absl::Status status) {
  if (!broken_.ok()) return broken_;
  broken_ = std::move(status);
  Leave(broken_);
  return broken_;
}

void PeerMesh::Leave(const absl::Status& why) {
  if (broken_.ok()) broken_ = absl::AbortedError("this member has left its group");
  const bool failed = absl::IsAborted(why) || absl::IsDeadlineExceeded(why);
  const std::string message = failed ? std::string(why.message().substr(0, kMaxFarewellBytes)) : "";
  const uint32_t code = failed ? static_cast<uint32_t>(why.code()) : 0;
  for (Peer& peer : peers_) {
    peer.receives.clear();
    if (peer.fd < 0) continue;
    // Not into the middle of another frame; and nobody waits for those who don't listen.
    if (peer.sends.empty()) {
      Frame frame{kGoodbye, code, 0, message.size()};
      iovec parts[2] = {{&frame, sizeof(frame)},
                        {const_cast<char*>(message.data()), message.size()}};
      msghdr goodbye = {};
      goodbye.msg_iov = parts;
      goodbye.msg_iovlen = 2;
      [[maybe_unused]] const ssize_t sent = sendmsg(peer.fd, &goodbye, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    peer.sends.clear();
    // Closing over something unread would reset the connection, and the goodbye might be lost.
    char unread[4096];
    for (int i = 0; i < kMaxUnread && recv(peer.fd, unread, sizeof(unread), MSG_DONTWAIT) > 0;) ++i;
    close(peer.fd);
    peer.fd = -1;
  }
}

}  // namespace tensord::server
