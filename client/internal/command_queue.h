// Commands between the threads that give them and the one that sends them.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/client/internal/counters.h"
#include "tensord/common/mutex.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::internal {

// Packs what has queued into messages: the sender takes a message at a time, and what comes in
// while it is busy is in the next one. Bounded: a command counts until the server has acknowledged
// it, and whoever would go past a limit waits. Thread-safe.
class CommandQueue {
 public:
  // Of one message.
  static constexpr int kMaxCommandsPerMessage = 1024;
  static constexpr int64_t kMaxMessageBytes = 1024 * 1024;
  // Of one Drop.
  static constexpr int kMaxHandlesPerDrop = 4096;

  CommandQueue(int64_t max_pending_commands, int64_t max_pending_bytes, Counters* counters)
      : max_pending_commands_(max_pending_commands),
        max_pending_bytes_(max_pending_bytes),
        counters_(counters) {}

  // The reason once closed.
  absl::Status Push(v1::Command command);
  // Lets go of a handle. Never waits (it runs in destructors); there are no more of these than
  // there were commands that made tensors. No effect once closed.
  void PushDrop(uint64_t handle);

  // The next message, when there is one. False once stopped or closed.
  bool Take(v1::SessionStreamRequest* message);
  // Take returns false from now on; Push goes on as if nobody were sending.
  void StopTaking();

  // The server has taken in the first `received` commands of the session.
  void Acknowledge(uint64_t received);

  // Forgets what hasn't been sent. `reason` must not be OK; only the first counts.
  void Close(absl::Status reason);
  // OK, or the reason for which it was closed.
  absl::Status status() const;
  // Commands so far: the number of the last one.
  uint64_t pushed() const;

 private:
  struct Message {
    v1::SessionStreamRequest request;
    int64_t size_bytes = 0;
  };

  bool FullLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AppendLocked(v1::Command command, int64_t size_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t max_pending_commands_;
  const int64_t max_pending_bytes_;
  Counters* const counters_;

  mutable Mutex mu_;
  CondVar work_;   // something to take, or no more to come
  CondVar space_;  // something acknowledged, or closed
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Message> messages_ ABSL_GUARDED_BY(mu_);
  uint64_t pushed_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t acknowledged_ ABSL_GUARDED_BY(mu_) = 0;
  // Command number and size of each sent or queued message: the last command in it.
  std::deque<std::pair<uint64_t, int64_t>> sizes_ ABSL_GUARDED_BY(mu_);
  int64_t pending_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tensord::internal
