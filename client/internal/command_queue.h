// Queues commands until the server has acknowledged them.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensord/client/internal/command_encoder.h"
#include "tensord/client/internal/counters.h"
#include "tensord/client/internal/op_table.h"
#include "tensord/common/util/mutex.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::internal {

// An op that has been queued.
struct QueuedOp {
  uint64_t output = 0;  // the handle of the first output; further ones have the next handles
  OutputSpecs specs;    // of the outputs
};

// An op of a program.
struct ProgramOp {
  absl::string_view op;  // valid until the end of the process: OpSchema::name
  Attributes attrs;
  absl::InlinedVector<uint32_t, 3> operands;
  uint32_t num_outputs = 1;
};

// Packs commands into messages: commands that are pushed while a message is sent go into the next
// message. The queue keeps messages until the server has acknowledged them, so that they can be
// sent again if the connection breaks. It is bounded: a command counts until it is acknowledged,
// and a push beyond a limit waits (backpressure).
//
//     Push ──▶ encoder ──▶ complete message ── Take ──▶ sent ── Acknowledge ──▶ deleted
//                                ▲                       │
//                                └──────── Attach ───────┘  a new connection sends them again
//
// Thread-safe.
class CommandQueue {
 public:
  // When a message reaches this size, the queue begins the next message.
  static constexpr int64_t kMaxMessageBytes = 256 * 1024;

  CommandQueue(int64_t max_pending_commands, int64_t max_pending_bytes, Counters* counters)
      : max_pending_commands_(max_pending_commands),
        max_pending_bytes_(max_pending_bytes),
        counters_(counters) {}

  // Calls OpTable::set_dtype_support(). Must be called before the first push.
  void set_dtype_support(DTypeSupport support) {
    MutexLock lock(&mu_);
    ops_.set_dtype_support(std::move(support));
  }

  // Returns the message that attaches a connection to the session. It must be the connection's
  // first message. Take then returns again all messages that aren't acknowledged.
  std::string Attach(const std::string& session);

  // Each of these appends a command. If the queue is full, it waits. If the queue is closed, it
  // returns the reason. PushDropProgram() never waits, and does nothing if the queue is closed.
  absl::Status Push(const v1::Command& command) { return Push(command, nullptr); }
  // Sets `*number` to the command's number.
  absl::Status Push(const v1::Command& command, uint64_t* number);
  // Appends an op, and its definition if it is new. Sets `*queued`, which must be empty. If the op's
  // inference fails, returns its error and appends nothing.
  absl::Status PushOp(const OpToQueue& op, QueuedOp* queued);
  // Appends a program with a new number, and the definitions of its ops that are new. Returns the
  // number. `program` has everything but the number and the ops. If there are too many programs or
  // ops, returns RESOURCE_EXHAUSTED.
  absl::StatusOr<uint32_t> PushProgram(v1::Program program, absl::Span<const ProgramOp> ops);
  void PushDropProgram(uint32_t number);
  // Appends the drop of a handle. Never waits, because destructors call it. It needs no limit:
  // there are no more drops than commands that made tensors. If the queue is closed, has no effect.
  void PushDrop(uint64_t handle);

  // Returns the first of `count` consecutive handles that no tensor has had.
  uint64_t NextHandle(size_t count = 1) {
    MutexLock lock(&mu_);
    return NextHandleLocked(count);
  }

  using Message = std::shared_ptr<const std::string>;
  // Returns the message to send next. Returns null if there is none, or if the queue is closed.
  Message Take();
  // Returns the number of commands that Take hasn't returned. Takes no lock, so the number may be
  // out of date. A thread that has released the right to send, or ended a pause or an interval
  // before this call, sees the commands of all pushes that still saw these. In a push, the release
  // of the queue's mutex separates the change of the number from the check.
  int64_t num_unsent_commands() const { return num_unsent_commands_.load(); }
  // Returns whether so many answers have come since the last message that the next Take returns a
  // message for their acknowledgement alone. Takes no lock.
  bool has_answers_to_acknowledge() const {
    return has_answers_to_acknowledge_.load(std::memory_order_relaxed);
  }

  // Records that the server has the first `received` commands of the session, and that its answers
  // up to number `answers` have come, in a message of `bytes`. The next message acknowledges these
  // answers.
  void Acknowledge(uint64_t received, uint64_t answers = 0, int64_t bytes = 0);

  // Drops all messages, and fails every later push with `reason`, which must not be OK. Only the
  // first call has an effect.
  void Close(absl::Status reason);
  // Returns OK, or the reason given to Close.
  absl::Status status() const;
  // Returns the number of the last command. Commands are numbered from 1 on.
  uint64_t pushed() const;

  // Sets the function that a push calls, without a lock, before it waits. The function must make
  // sure that messages are sent and acknowledgements are received. Call set_on_full before the
  // first push.
  void set_on_full(std::function<void()> on_full) { on_full_ = std::move(on_full); }

 private:
  // A complete message with the commands `first` to `last`.
  struct CompleteMessage {
    uint64_t first;
    uint64_t last;
    Message message;
  };

  void CompleteMessageLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MustAcknowledgeLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool FullLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WaitForRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t NextHandleLocked(size_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return std::exchange(next_handle_, next_handle_ + count);
  }
  void CountLocked(int64_t commands) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AppendUnpackedLocked(const OpToQueue& op, uint64_t output, size_t num_outputs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AppendDefinitionLocked(const v1::Definition& definition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t max_pending_commands_;
  const int64_t max_pending_bytes_;
  Counters* const counters_;
  std::function<void()> on_full_;
  std::atomic<int64_t> num_unsent_commands_{0};  // written with mu_ held

  mutable Mutex mu_;
  CondVar space_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  OpTable ops_ ABSL_GUARDED_BY(mu_);
  CommandEncoder encoder_ ABSL_GUARDED_BY(mu_);  // the message that isn't complete yet
  // The complete messages that aren't acknowledged.
  std::deque<CompleteMessage> messages_ ABSL_GUARDED_BY(mu_);
  size_t sent_ ABSL_GUARDED_BY(mu_) = 0;  // how many of messages_ were sent on this connection
  uint64_t attempts_ ABSL_GUARDED_BY(mu_) = 0;  // connections so far
  int64_t complete_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t complete_commands_ ABSL_GUARDED_BY(mu_) = 0;  // the last command in a complete message
  uint64_t next_handle_ ABSL_GUARDED_BY(mu_) = 1;
  uint32_t programs_ ABSL_GUARDED_BY(mu_) = 0;  // the last program's number
  uint32_t live_programs_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t pushed_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t acknowledged_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t answers_ ABSL_GUARDED_BY(mu_) = 0;               // received from the server
  uint64_t answers_acknowledged_ ABSL_GUARDED_BY(mu_) = 0;  // by the last message
  int64_t unacknowledged_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::atomic<bool> has_answers_to_acknowledge_{false};
};

}  // namespace tensord::internal
