// A member's connections with all other members of its group.
//
// All work happens on the calling thread: there is no background thread and no callback. No
// function throws. The mesh checks what a peer sends: elements go only into the memory of a pending
// Receive(), and only if their size is the one that Receive() expects.
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
#include "tensord/common/util/mutex.h"
#include "tensord/server/communicator/member_names.h"

namespace tensord::server {

// Any thread may call Wake() and Cancel(). All other functions are for one thread at a time. After
// the first error all calls return that error. ABORTED means that a member is lost, or has sent
// something invalid. DEADLINE_EXCEEDED means that this member or another one waited too long. The
// member that finds an error sends it to all other members before it closes its connections. If the
// member finds the error in Watch(), it has run its operations, so the other members end theirs
// before they return the error.
class PeerMesh {
 public:
  using Clock = std::chrono::steady_clock;
  // The limit of one member's message in Exchange().
  static constexpr size_t kMaxWordBytes = 4096;

  PeerMesh(int rank, int size, std::chrono::milliseconds timeout, MemberNames names = {});
  ~PeerMesh();
  PeerMesh(const PeerMesh&) = delete;
  PeerMesh& operator=(const PeerMesh&) = delete;

  int rank() const { return rank_; }
  const MemberNames& names() const { return names_; }
  int size() const { return static_cast<int>(peers_.size()); }
  std::chrono::milliseconds timeout() const { return timeout_; }

  // Takes ownership of a connection, which must be non-blocking.
  void Adopt(int peer, int fd);
  bool HasPeer(int peer) const { return peers_[peer].fd >= 0; }

  // Thread-safe. Makes Watch() return.
  void Wake();
  // Thread-safe. The current call and all later ones return `status`. The other members see that
  // this member has left.
  void Cancel(absl::Status status);

  // Blocks until an event at `fds`, a call of Wake(), or `deadline`. If Cancel() was called,
  // returns its status. Otherwise returns OK, also at the deadline.
  absl::Status Poll(std::vector<pollfd>* fds, Clock::time_point deadline);

  // Blocks until Wake() is called. If a member is lost, returns an error.
  absl::Status Watch();
  // Blocks for at most `pause`, or until Wake() is called. If a member is lost, returns an error.
  absl::Status WatchFor(std::chrono::milliseconds pause);

  // Sends `word` to all other members. Returns the words of all members, by rank. Blocks for the
  // timeout at most.
  absl::StatusOr<std::vector<std::string>> Exchange(absl::string_view word);

  // Send() and Receive() queue a transfer of `bytes`. The transfers of one peer run in order. Bytes
  // are transferred during Send() and the blocking calls. `*done` is incremented when the memory
  // may be reused, or is filled. Memory and counter must stay valid until then, or until an error.
  // `slot` must be equal at both ends.
  void Send(int peer, uint64_t slot, const void* data, size_t bytes, int* done);
  void Receive(int peer, uint64_t slot, void* data, size_t bytes, int* done);
  // Blocks until `*done` is above 0. If no bytes are transferred for the timeout, returns
  // DEADLINE_EXCEEDED.
  absl::Status Await(const int* done);

  // Sends `why` to all members that are still connected, and closes the connections. If `why` is
  // neither ABORTED nor DEADLINE_EXCEEDED, the other members learn only that this member has left.
  void Leave(const absl::Status& why);

 private:
  struct Frame {
    uint32_t kind;
    uint32_t code;
    uint64_t slot;
    uint64_t bytes;
  };
  enum Kind : uint32_t { kWord = 0x7a01, kData, kLeave };
  // The slot of a leave frame with an error. After kLeftInOperation, the other members fail at
  // once.
  enum LeaveTime : uint64_t { kLeftInOperation, kLeftBetweenOperations };

  struct Outgoing {
    Frame frame;
    const void* data;
    size_t sent;        // of frame and data
    int* done;          // null for words
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
    std::string content;            // of a word or a leave frame
    bool parked = false;            // a data frame has arrived before its Receive()
    std::deque<std::string> words;  // not yet returned by Exchange(), the oldest first
    bool disconnected = false;
    std::string disconnect_reason;  // how the connection ended: "has left it"
    absl::Status leave_error;       // with which the peer has left between operations
  };

  // Blocks until bytes can be sent or received, and transfers them. Returns OK at the deadline.
  absl::Status Progress(Clock::time_point deadline);
  // Flush() sends, and ReceiveFrames() receives, what is possible without blocking.
  absl::Status Flush(int rank);
  absl::Status ReceiveFrames(int rank);
  // Returns whether the whole frame has arrived.
  absl::StatusOr<bool> ReceiveFrame(Peer* peer, int rank);
  // Checks the head of a frame. Returns false if its Receive() has not been called yet.
  absl::StatusOr<bool> BeginFrame(Peer* peer, int rank);
  absl::Status EndFrame(Peer* peer, int rank);
  // Reads up to `bytes`. Returns how many; 0 if none are available now.
  absl::StatusOr<size_t> ReadSome(Peer* peer, int rank, void* data, size_t bytes);
  // Handles a closed connection. Returns an error if this member still needs that peer.
  absl::Status HandleDisconnect(int rank, absl::string_view reason);
  absl::Status DisconnectError(int rank) const;
  absl::Status TimeoutError(const std::string& what) const;
  // Records the first error, and leaves with it. Returns the first error.
  absl::Status Fail(absl::Status status, LeaveTime time = kLeftInOperation);
  void Leave(const absl::Status& why, LeaveTime time);
  // Calls Fail() with the error that a peer has sent something invalid.
  absl::Status Reject(int rank, absl::string_view what);

  const int rank_;
  const std::chrono::milliseconds timeout_;
  const MemberNames names_;
  const int wake_fd_;
  std::vector<Peer> peers_;
  std::vector<pollfd> fds_;  // of Progress()
  std::vector<int> fd_ranks_;
  Clock::time_point last_transfer_;
  bool expecting_ = false;  // Exchange() has begun an operation, so peers may send elements early
  bool woken_ = false;
  absl::Status error_;

  Mutex mu_;
  absl::Status cancelled_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
