// Commands between the threads that give them and the wire.
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
#include "tensord/common/mutex.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::internal {

// One input of an op.
struct QueuedInput {
  uint64_t handle;
  const TensorSpec* spec;
  std::atomic<const NumberedSpec*>* numbered_spec;  // filled in where it is null
};

// An op that has been given.
struct QueuedOp {
  uint64_t output = 0;
  TensorSpec spec;
  const NumberedSpec* numbered_spec = nullptr;
};

// Packs what has queued into messages: what comes in while one is being sent is in the next one.
// Messages are kept until the server has acknowledged them, so that they can be sent again where a
// connection breaks. Bounded: a command counts until then, and whoever would go past a limit waits.
// Thread-safe.
class CommandQueue {
 public:
  // What a message is cut at.
  static constexpr int64_t kMaxMessageBytes = 256 * 1024;

  CommandQueue(int64_t max_pending_commands, int64_t max_pending_bytes, Counters* counters)
      : max_pending_commands_(max_pending_commands),
        max_pending_bytes_(max_pending_bytes),
        counters_(counters) {}

  // The message that attaches a connection to the session. Goes first on each, and means that
  // everything not acknowledged yet is to be sent again.
  std::string Attach(const std::string& session);

  // Each of these gives a command its place; the reason where the queue is closed.
  absl::Status Push(const v1::Command& command) { return Push(command, nullptr); }
  // Tells the command's number.
  absl::Status Push(const v1::Command& command, uint64_t* number);
  // An op with inputs. The error may also be inference's; nothing is sent then.
  absl::StatusOr<QueuedOp> PushOp(absl::string_view op, absl::Span<const QueuedInput> inputs,
                                  const Attributes& attrs);
  // The number of an op's definition, which is sent where it is new. RESOURCE_EXHAUSTED where the
  // stream has no room for more.
  absl::StatusOr<uint32_t> Define(absl::string_view op, size_t num_inputs, const Attributes& attrs);
  // Sends a program under the next number, and tells it.
  absl::StatusOr<uint32_t> PushProgram(v1::Program program);
  void PushDropProgram(uint32_t number);
  // Lets go of a handle. Never waits (it runs in destructors); there are no more of these than
  // there were commands that made tensors. No effect once closed.
  void PushDrop(uint64_t handle);

  uint64_t NextHandle() { return next_handle_.fetch_add(1, std::memory_order_relaxed); }

  using Message = std::shared_ptr<const std::string>;
  // What is to be sent next; null where nothing is, or the queue is closed.
  Message Take();
  // Commands that wait to be taken; a glance.
  int64_t untaken() const { return untaken_.load(std::memory_order_relaxed); }
  // Whether many answers have come that no message has acknowledged; a glance.
  bool owes_receipt() const { return owes_receipt_.load(std::memory_order_relaxed); }

  // The server has taken in the first `received` commands of the session. Its answers have come up
  // to number `answers`, in a message of `bytes`: the next message says so, and one of its own does
  // where many have come.
  void Acknowledge(uint64_t received, uint64_t answers = 0, int64_t bytes = 0);

  // Forgets what hasn't been sent. `reason` must not be OK; only the first counts.
  void Close(absl::Status reason);
  // OK, or the reason for which it was closed.
  absl::Status status() const;
  // Commands so far: the number of the last one.
  uint64_t pushed() const;

  // Called, without a lock held, when a thread begins to wait for room: somebody must see to it
  // that messages go out and acknowledgements come in. Set before the first Push.
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
  CommandEncoder encoder_ ABSL_GUARDED_BY(mu_);  // the message that is being put together
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
