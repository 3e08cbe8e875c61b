// A member's connections with all others of its group, and what goes over them.
//
// Everything happens on the thread that calls: there is none that reads behind it, no callback, and
// nothing that throws. What a peer sends is looked at before it is believed: bytes go only into
// memory for which a Receive is waiting, exactly as many as it asked for.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/common/mutex.h"
#include "tensord/server/collective/member_names.h"

namespace tensord::server {

// Used by one thread at a time, but for Wake() and Cancel(). Once anything has failed all fails
// with the same error: ABORTED where a member is lost, DEADLINE_EXCEEDED where one didn't come in
// time, here or at another member, which then says so to all others before it hangs up.
class PeerMesh {
 public:
  using Clock = std::chrono::steady_clock;
  // What one member says to all others at a time, at most.
  static constexpr size_t kMaxWordBytes = 4096;

  PeerMesh(int rank, int size, std::chrono::milliseconds timeout, MemberNames names = {});
  ~PeerMesh();
  PeerMesh(const PeerMesh&) = delete;
  PeerMesh& operator=(const PeerMesh&) = delete;

  int rank() const { return rank_; }
  const MemberNames& names() const { return names_; }
  int size() const { return static_cast<int>(peers_.size()); }
  std::chrono::milliseconds timeout() const { return timeout_; }

  // Takes over a connection, which is to be non-blocking.
  void Adopt(int peer, int fd);
  bool HasPeer(int peer) const { return peers_[peer].fd >= 0; }

  // From any thread. Has Watch() return.
  void Wake();
  // From any thread. Everything ends with `status`, which the others hear of as of a member that
  // has left.
  void Cancel(absl::Status status);

  // Waits for what happens at `fds`, until `deadline`; Cancel()'s status where that was called. A
  // call of Wake() ends it, too.
  absl::Status Poll(std::vector<pollfd>* fds, Clock::time_point deadline);

  // Returns at Wake(), or with an error once a member is lost.
  absl::Status Watch();
  // Blocks for at most `pause`, or until Wake() is called. If a member is lost, returns an error.
  absl::Status WatchFor(std::chrono::milliseconds pause);

  // Tells all others `word`, and returns what everybody says, by rank. Waits for the timeout at
  // most.
  absl::StatusOr<std::vector<std::string>> Exchange(absl::string_view word);

  // Send and receive `bytes`, in order for each peer, while Await() or another Send or Receive is
  // being called. `*done` is counted up when the memory is free again, or filled. Both memory and
  // counter must last until then, or until an error.
  void Send(int peer, uint64_t slot, const void* data, size_t bytes, int* done);
  void Receive(int peer, uint64_t slot, void* data, size_t bytes, int* done);
  // Until `*done` is above 0. Ends with DEADLINE_EXCEEDED when nothing has moved for the timeout.
  absl::Status Await(const int* done);

  // Says goodbye to all that are left, with the error where there is one, and hangs up.
  void Leave(const absl::Status& why);

 private:
  struct Frame {
    uint32_t kind;
    uint32_t code;
    uint64_t slot;
    uint64_t bytes;
  };
  enum Kind : uint32_t { kWord = 0x7a01, kData, kGoodbye };

  struct Outgoing {
    Frame frame;
    const void* data;
    size_t sent;        // of frame and data
    int* done;          // null for what is owned
    std::string owned;  // of a word
  };
  struct Incoming {
    uint64_t slot;
    void* data;
    size_t bytes;
    int* done;
  };
  struct Peer {
    int fd = -1;
    std::deque<Outgoing> sends;
    std::deque<Incoming> receives;
    // The frame that is being read: its head, then its content.
    Frame frame;
    size_t head_bytes = 0;
    size_t content_bytes = 0;
    std::string content;            // of a word or goodbye
    bool parked = false;            // nobody has asked for this frame yet
    std::deque<std::string> words;  // that haven't been asked for yet, the oldest first
    bool gone = false;
    std::string farewell;  // how it went
  };

  // Waits, and moves what can be moved.
  absl::Status Progress(Clock::time_point deadline);
  absl::Status Flush(int rank);
  absl::Status TakeIn(int rank);
  // Whether the whole frame has come.
  absl::StatusOr<bool> TakeFrame(Peer* peer, int rank);
  absl::StatusOr<bool> BeginFrame(Peer* peer, int rank);
  absl::Status EndFrame(Peer* peer, int rank);
  // Reads up to `bytes`: how many came, 0 where none are there now.
  absl::StatusOr<size_t> ReadSome(Peer* peer, int rank, void* data, size_t bytes);
  // It has hung up, or been cut off: an error where that matters now.
  absl::Status Lose(int rank, absl::string_view how);
  absl::Status Gone(int rank) const;
  absl::Status Break(absl::Status status);
  absl::Status Late(const std::string& what) const;
  absl::Status Nonsense(int rank, absl::string_view what);

  const int rank_;
  const std::chrono::milliseconds timeout_;
  const MemberNames names_;
  const int wake_fd_;
  std::vector<Peer> peers_;
  std::vector<pollfd> fds_;  // Progress's
  std::vector<int> fd_ranks_;
  Clock::time_point moved_;  // when bytes last did
  bool expecting_ = false;   // an operation is under way: others may send elements before we ask
  bool woken_ = false;
  absl::Status broken_;

  Mutex mu_;
  absl::Status cancelled_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
