// The pull of one tensor from another server.
#pragma once

#include <grpcpp/alarm.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/rpc/bulk/tensor_upload.h"
#include "tensord/server/rpc/call_queue.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/peer/fetch_attempt.h"
#include "tensord/server/rpc/peer/message_store.h"
#include "tensord/server/rpc/peer/parallel_fetches.h"
#include "tensord/server/rpc/peer/peers.h"
#include "tensord/server/rpc/peer/pull_progress.h"
#include "tensord/server/rpc/peer/pull_retries.h"

namespace tensord::server {

// The error of a pull to whose tensor nothing else refers.
inline constexpr char kTensorGone[] = "nothing refers to the tensor any more";

// Calls the source and writes the received bytes to the tensor. The bytes come in messages or
// through shared memory. If the connection breaks, calls again, until the source has been
// unreachable for too long. If a call with a mapped ring failed, requests no further shared memory.
// If the pull fails, for example because the client has dropped the tensor or its session has
// ended, tells the source (TicketRelease), which then frees the ticket.
//
//             OnDue            first message             bytes, or a ring
//    waiting ──────▶ calling ───────────────▶ receiving ─────────────────▶ storing
//     ▲   │           ▲   │                     │    ▲                        │
//     │   │     bytes │   │                     │    └────────────────────────┘
//     │   │       are │   │                     │       stored, or ring mapped
//     │   │   missing │   │                     │
//     │   │ stopped   │   │ the call ends       │ the call ends
//     │   ▼           │   ▼                     │
//     │ ended ◀─── parts ◀─── AttemptEnded ◀────┘
//     │   ▲            handed     │   │
//     │   │             over      │   │
//     │   └───────────────────────┘   │ a retry, after a pause
//     │      complete, or failed      │
//     └───────────────────────────────┘
//
//   state      what the pull does
//   waiting    Waits for `due_alarm_`. There is no call.
//   calling    The call (SourceCall) has been started. The source has not answered it.
//   receiving  The call reads messages. If it is slow, parts may begin at the same time.
//   storing    The bytes of a message are stored, or a ring is mapped (MessageStore). If a worker
//              does this, the call reads the next message meanwhile.
//   parts      Parts fetch the remaining bytes, and there is no call. When all bytes have arrived
//              or the pull is stopped, the pull ends. If a part fails, another call follows.
//   ended      The outcome has been reported.
//
// AttemptEnded() decides only once all operations of the call have ended, and so has the worker's
// job, if any. A pull whose tensor can't be claimed ends in Start().
//
// Runs on the thread of the peers' queue. Its operations on the queue keep it alive.
class PeerPull final : public PeerOperation,
                       private SourceCall::User,
                       public std::enable_shared_from_this<PeerPull> {
 public:
  // The outcome of a pull.
  struct Outcome {
    absl::Status status;
    TensorRef tensor;  // null after an error
    v1::CopyPath path = v1::COPY_PATH_UNSPECIFIED;
    int64_t bytes = 0;
    std::chrono::nanoseconds transfer{0};  // from the first byte to the last
    int resumptions = 0;
    int connections = 1;
  };

  // `promised_here` says that the handle was made for this pull, and is removed if the pull fails.
  // `counted` counts the pull against the principal's limit.
  PeerPull(ServiceContext* context, Peers* peers, SessionRef session, v1::PullTensorRequest request,
           bool promised_here, Charge counted);

  // Starts the pull of a promised tensor. Call it once. `ended` runs with the outcome, at once or
  // later on the queue's thread.
  void Start(const TensorRef& tensor, std::function<void(Outcome)> ended);

  // Stops the pull. Thread-safe. The caller may hold locks of tensors.
  void Cancel() override;

 private:
  friend class CallEvent<PeerPull>;
  using Event = CallEvent<PeerPull>;

  void StartAttempt();
  // Returns a request with the ticket and the claim of this pull: a FetchRequest or a
  // ReleaseTicketRequest.
  template <typename Request>
  Request TicketRequest() const;
  // Returns the request for the remaining bytes. It requests shared memory if that is possible.
  v1::FetchRequest FirstRequest() const;
  void OnDue(bool ok);
  void OnWorkerDone(bool ok);
  void AfterEvent() {}
  const void* event_owner() const { return nullptr; }

  void OnMessageRead() override;
  void OnSending() override { attempt_->ring.MessageSent(); }
  void OnCallEnded() override { AttemptEnded(); }

  // Handles the received message, unless a worker still handles the previous one.
  void ProcessNext();
  void HandleChunk(const FetchChunk& chunk);
  absl::Status CheckSpec(const v1::TensorSpec& spec) const;
  void MapRing(const v1::SharedRing& ring);
  void OnRingMapped();
  void StoreChunk(const FetchChunk& chunk);
  // Counts bytes of the tensor that have been stored.
  void CountReceived(int64_t bytes, bool shared) {
    progress_.Add(bytes, shared);
    session_->principal()->counters().CountReceived(Transfer::kBulk, bytes);
  }
  // If the source has withdrawn the ring, cancels the call and returns true. A source withdraws the
  // ring when it ends the call. After the cancellation, the pull calls again.
  bool CancelIfWithdrawn();
  void OnChunkStored();
  void OnMessageStored();
  // Cancels the call. Once it has ended, the pull fails with `status`.
  void Fail(const absl::Status& status);
  // If the call and the worker's job have ended, decides how to continue.
  void AttemptEnded();
  // If the connection is slow, begins to fetch the following bytes in parts, over more connections.
  // The call continues up to the first part. If a part fails, another call fetches the missing
  // bytes.
  void MaybeSpread();
  void BeginParts();
  void OnPartProgress();
  // Counts the bytes of the parts as received, in order. Ends the pull, or calls the source again,
  // once no further part can follow.
  void CollectParts();
  // Returns the offset at which the call's bytes end and those of the parts begin.
  int64_t AttemptEnd() const;
  // The outcome of a call, or of the pull.
  struct Result {
    absl::Status status;          // OK if the tensor is complete
    bool leaves_promise = false;  // another writer may fill the tensor
    bool retryable = false;       // another call may succeed
  };
  Result ClassifyAttempt() const;
  Result StoppedResult() const;
  void ScheduleAttempt();
  void ReleaseTicket();
  void End(Result result);
  bool stopped() const;

  ServiceContext* const context_;
  Peers* const peers_;
  const SessionRef session_;
  const v1::PullTensorRequest request_;
  const bool promised_here_;
  Charge counted_;  // against the principal's limit
  const std::string pull_id_;
  std::weak_ptr<Tensor> tensor_;
  std::function<void(Outcome)> on_ended_;
  TensorUpload upload_;

  Event due_{&PeerPull::OnDue};
  Event worker_done_{&PeerPull::OnWorkerDone};

  MessageStore store_;
  absl::Status failure_;  // set by Fail()

  PullRetries retries_;
  PullProgress progress_;
  bool avoid_ring_ = false;  // a call with a mapped ring has failed

  ParallelFetches parts_;
  bool awaits_parts_ = false;  // there is no call, and a part's bytes come next

  mutable Mutex mu_;  // acquired after tensors' locks
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  // Only the queue's thread writes it, with the lock held. That thread reads it without the lock.
  std::unique_ptr<FetchAttempt> attempt_;
  grpc::Alarm due_alarm_;
  bool due_set_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tensord::server
