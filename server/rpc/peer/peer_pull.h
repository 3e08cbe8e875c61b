// One tensor, fetched from another server.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/rpc/bulk/tensor_upload.h"
#include "tensord/server/rpc/call_queue.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/peer/fetch_retries.h"
#include "tensord/server/rpc/peer/parallel_fetches.h"
#include "tensord/server/rpc/peer/peers.h"
#include "tensord/server/rpc/peer/ring_receiver.h"

namespace tensord::server {

inline constexpr char kTensorUnwanted[] = "nobody wants the tensor any more";

// Calls the source, puts what comes where it belongs, out of messages or out of memory that the
// source shares, and calls again where the connection breaks, for messages from then on, until the
// source has been out of reach for too long. Driven by the thread of the peers' queue, and kept
// alive by what it has begun there.
class PeerPull final : public std::enable_shared_from_this<PeerPull> {
 public:
  // How a fetch went.
  struct Outcome {
    absl::Status status;
    TensorRef tensor;  // where that is OK
    v1::CopyPath path = v1::COPY_PATH_UNSPECIFIED;
    int64_t bytes = 0;
    std::chrono::nanoseconds transfer{0};  // from the first byte to the last
    int resumptions = 0;
    int connections = 1;
  };

  // `promised_here`: its handle was made for this fetch, and goes where that fails.
  PeerPull(ServiceContext* context, Peers* peers, SessionRef session, v1::PullTensorRequest request,
           bool promised_here, UsageHold counted);

  // Once, for a tensor that is promised: `ended` is told how it went, at once or later.
  void Start(const TensorRef& tensor, std::function<void(Outcome)> ended);

  // Breaks it off. From any thread, also with locks of tensors held.
  void Stop();

 private:
  friend class CallEvent<PeerPull>;
  using Event = CallEvent<PeerPull>;
  using Clock = std::chrono::steady_clock;

  // One call.
  struct Attempt {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;
    grpc::Alarm deadline;  // to be answered by
    grpc::Status status;
    bool answered = false;
    bool finished = false;
    bool handed_over = false;  // parts bring what follows
    Clock::time_point first_byte;
    int64_t bytes = 0;
    std::deque<grpc::ByteBuffer> outgoing;
    bool sending = false;
    bool wants_ring = false;  // and none has been offered so far
    RingReceiver ring;
  };

  void Dial();
  // What is wanted, by memory where that may be had.
  v1::FetchRequest FirstRequest() const;
  void OnDue(bool ok);
  void OnStarted(bool ok);
  void OnAsked(bool ok);
  void OnSent(bool ok);
  void OnRead(bool ok);
  void OnWoken(bool ok);
  void OnDeadline(bool ok);
  void OnFinished(bool ok);
  void AfterEvent() {}

  // The tag for an operation that begins now.
  void* Begin(Event* event);
  void StartRead();
  // Says something to the source after the first request.
  void Answer(const v1::FetchRequest& answer);
  void SendNext();
  // Takes up what has come in, where nothing is under way with what came before.
  void ProcessNext();
  void Take(const FetchChunk& chunk);
  absl::Status CheckSpec(const v1::TensorSpec& spec) const;
  void TakeRing(const v1::SharedRing& ring);
  void RingMapped();
  void Land(const FetchChunk& chunk);
  void Landed();
  void LandedMessage();
  // Has `work`, which may wait, run by a worker; woken_ comes then.
  void RunByWorker(std::function<void()> work);
  // The fetch fails by this as soon as its call has ended.
  void Fail(const absl::Status& status);
  // Nothing of the call is outstanding.
  void AttemptEnded();
  // Where one connection is slow: fetches parts of what follows over others. They are taken up once
  // the call's bytes have come so far; where one fails a call brings what is missing.
  void MaybeSpread();
  void BeginParts();
  void OnPartNews();
  void TakeParts();
  // Where the call's bytes end, and those of parts begin.
  int64_t AttemptEnd() const;
  // The outcome of a call, or of the fetch.
  struct Result {
    absl::Status status;          // OK if the tensor is complete
    bool leaves_promise = false;  // something else may bring the tensor
    bool may_pass = false;        // another call may succeed
  };
  Result ClassifyAttempt() const;
  Result WhyStopped() const;
  void DialLater();
  void End(Result result);
  bool stopped() const;

  ServiceContext* const context_;
  Peers* const peers_;
  const SessionRef session_;
  const v1::PullTensorRequest request_;
  const bool promised_here_;
  UsageHold counted_;
  const std::string fetch_id_;
  std::weak_ptr<Tensor> tensor_;
  std::function<void(Outcome)> ended_;
  TensorUpload upload_;
  bool has_memory_ = false;

  Event due_{&PeerPull::OnDue};
  Event started_{&PeerPull::OnStarted};
  Event asked_{&PeerPull::OnAsked};
  Event sent_{&PeerPull::OnSent};
  Event read_{&PeerPull::OnRead};
  Event woken_{&PeerPull::OnWoken};
  Event deadline_{&PeerPull::OnDeadline};
  Event finish_{&PeerPull::OnFinished};
  int outstanding_ = 0;  // of the call's events

  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer message_;  // what is being landed
  bool has_incoming_ = false;
  bool busy_ = false;       // kept so by a worker
  bool mapping_ = false;    // which maps a ring
  FetchChunk chunk_;        // or what it lands
  absl::Status landed_;     // how that went
  absl::Status failure_;    // our own
  grpc::Alarm wake_alarm_;  // the worker's

  FetchRetries retries_;
  Clock::time_point first_byte_;
  Clock::time_point last_byte_;
  int64_t bytes_ = 0;
  int64_t shared_bytes_ = 0;  // of them, that came by memory
  bool ring_broke_ = false;   // messages do from now on

  ParallelFetches parts_;
  bool awaits_parts_ = false;  // and there is no call

  mutable Mutex mu_;  // after tensors' locks
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  // Written with the lock held, by the queue's thread alone, which reads it without.
  std::unique_ptr<Attempt> attempt_;
  grpc::Alarm due_alarm_;
  bool due_set_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tensord::server
