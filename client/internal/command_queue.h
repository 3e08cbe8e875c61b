// The commands that are to be sent, or may have to be sent again.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensord/client/internal/command_encoder.h"
#include "tensord/client/internal/counters.h"
#include "tensord/client/internal/op_table.h"
#include "tensord/common/util/mutex.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::internal {

// One input of an op.
struct QueuedInput {
  uint64_t handle;
  const TensorSpec* spec;
  std::atomic<const NumberedSpec*>* numbered_spec;  // PushOp sets it if it is null
};

// An op that has been queued.
struct QueuedOp {
  uint64_t output = 0;
  TensorSpec spec;
  const NumberedSpec* numbered_spec = nullptr;
};

// Packs commands into messages: commands that are pushed while a message is sent go into the next.
// The queue keeps messages until the server has acknowledged them, so that they can be sent again
// if the connection breaks. It is bounded: a command counts until it is acknowledged, and a push
// beyond a limit waits (backpressure).
//
//     Push ──▶ encoder ──▶ cut message ── Take ──▶ sent ── Acknowledge ──▶ forgotten
//                                ▲                  │
//                                └──── Attach ──────┘  a new connection sends them again
//
// Thread-safe.
class CommandQueue {
 public:
  // A message is cut when it has so many bytes.
  static constexpr int64_t kMaxMessageBytes = 256 * 1024;

  CommandQueue(int64_t max_pending_commands, int64_t max_pending_bytes, Counters* counters)
      : max_pending_commands_(max_pending_commands),
        max_pending_bytes_(max_pending_bytes),
        counters_(counters) {}

  // Returns the message that attaches a connection to the session, which must be its first. From
  // then on Take returns again every message that isn't acknowledged.
  std::string Attach(const std::string& session);

  // Each of these appends a command. It waits while the queue is full, and returns the reason if
  // the queue is closed.
  absl::Status Push(const v1::Command& command) { return Push(command, nullptr); }
  // Sets `*number` to the command's number.
  absl::Status Push(const v1::Command& command, uint64_t* number);
  // Appends an op with inputs. The error may also be that of its inference; nothing is appended
  // then.
  absl::StatusOr<QueuedOp> PushOp(absl::string_view op, absl::Span<const QueuedInput> inputs,
                                  const Attributes& attrs);
  // Returns the number of an op's definition, which is sent if it is new. RESOURCE_EXHAUSTED if the
  // stream has too many.
  absl::StatusOr<uint32_t> Define(absl::string_view op, size_t num_inputs, const Attributes& attrs);
  // Appends a program with a new number and returns that. RESOURCE_EXHAUSTED if there are too many.
  absl::StatusOr<uint32_t> PushProgram(v1::Program program);
  void PushDropProgram(uint32_t number);
  // Appends the drop of a handle. Never waits, because it runs in destructors: there are no more
  // drops than commands that made tensors. No effect once closed.
  void PushDrop(uint64_t handle);

  uint64_t NextHandle() { return next_handle_.fetch_add(1, std::memory_order_relaxed); }

  using Message = std::shared_ptr<const std::string>;
  // Returns the message to send next; null if there is none, or the queue is closed.
  Message Take();
  // The number of commands that wait to be taken. Takes no lock, so it may be out of date.
  int64_t untaken() const { return untaken_.load(std::memory_order_relaxed); }
  // Whether many answers have come that no message has acknowledged. Takes no lock.
  bool owes_receipt() const { return owes_receipt_.load(std::memory_order_relaxed); }

  // Notes that the server has the first `received` commands of the session, and that its answers up
  // to number `answers` have come, in a message of `bytes`. The next message acknowledges those; if
  // many have come, Take returns a message for that alone.
  void Acknowledge(uint64_t received, uint64_t answers = 0, int64_t bytes = 0);

  // Drops all messages, and fails every later push. `reason` must not be OK; only the first counts.
  void Close(absl::Status reason);
  // OK, or the reason of Close.
  absl::Status status() const;
  // The number of commands so far, which is the number of the last one.
  uint64_t pushed() const;

  // Sets the function that is called, without a lock, when a push begins to wait: it must have
  // messages sent and acknowledgements received. Call it before the first push.
  void set_on_full(std::function<void()> on_full) { on_full_ = std::move(on_full); }

 private:
  // Commands `first` to `last`, encoded.
  struct Cut {
    uint64_t first;
    uint64_t last;
    Message message;
  };

  void CutLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool OwesReceiptLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool FullLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WaitForRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountLocked(int64_t commands) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AppendUnpackedLocked(absl::string_view op, absl::Span<const QueuedInput> inputs,
                            const Attributes& attrs, uint64_t output)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AppendDefinitionLocked(uint32_t number, absl::string_view op, size_t num_inputs,
                              const Attributes& attrs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t max_pending_commands_;
  const int64_t max_pending_bytes_;
  Counters* const counters_;
  std::function<void()> on_full_;
  std::atomic<uint64_t> next_handle_{1};
  std::atomic<int64_t> untaken_{0};

  mutable Mutex mu_;
  CondVar space_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  OpTable ops_ ABSL_GUARDED_BY(mu_);
  CommandEncoder encoder_ ABSL_GUARDED_BY(mu_);  // the message that isn't cut yet
  std::deque<Cut> cuts_ ABSL_GUARDED_BY(mu_);    // those before it that aren't acknowledged
  size_t sent_ ABSL_GUARDED_BY(mu_) = 0;         // of them, on this connection
  uint64_t attempts_ ABSL_GUARDED_BY(mu_) = 0;   // connections so far
  int64_t cut_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t cut_commands_ ABSL_GUARDED_BY(mu_) = 0;  // so far
  uint32_t programs_ ABSL_GUARDED_BY(mu_) = 0;      // the last one's number
  uint32_t live_programs_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t pushed_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t acknowledged_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t answers_ ABSL_GUARDED_BY(mu_) = 0;               // that have come
  uint64_t answers_acknowledged_ ABSL_GUARDED_BY(mu_) = 0;  // in the last message
  int64_t unacknowledged_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::atomic<bool> owes_receipt_{false};
};

}  // namespace tensord::internal
