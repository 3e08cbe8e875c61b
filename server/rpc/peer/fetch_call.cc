// Sends a tensor's bytes to another server that presents a ticket, in messages or through shared
// memory. That server is called the destination.
#include "tensord/server/rpc/peer/fetch_call.h"

#include <grpcpp/alarm.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/server/rpc/bulk/ring_slots.h"
#include "tensord/server/rpc/bulk/send_call.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/peer/peers.h"
#include "tensord/server/rpc/proto_convert.h"

namespace tensord::server {
namespace {

// If the ticket is valid, the call sends the tensor's spec at once. It then waits for the tensor
// without a time limit. If the tensor never becomes done, the call ends when the destination
// cancels it. The call doesn't keep the tensor's session in use.
class FetchCall final : public SendCall {
 public:
  using SendCall::SendCall;

 private:
  friend class CallEvent<FetchCall>;
  using Clock = std::chrono::steady_clock;

  // How the bytes are sent.
  enum class Route {
    kUnknown,   // not chosen: the tensor has no readable bytes
    kOpening,   // a worker opens a ring
    kOffered,   // the ring is offered, and the destination hasn't answered
    kRing,      // through the ring: the destination has mapped it
    kMessages,  // in messages: there is no ring, or the destination can't map it
  };

  void OnAdmitted() override {
    const absl::Status caller = bulk_->service->peers->CheckCaller(*principal());
    if (!caller.ok()) return Fail(caller);
    StartRead(&request_bytes_);
  }

  void OnRead(bool ok) override {
    if (finished()) return;
    return ticket_ == nullptr ? OnRequest(ok) : OnAnswer(ok);
  }

  void OnWritten(bool ok) override {
    writing_ = false;
    if (!ok) return Fail(ClientDisconnected());
    SendQueued();
    if (begun()) SendNext();
  }

  void OnDone() override {
    timer_.Cancel();
    if (sent_all() && request_.limit_bytes() == 0 && !cancelled()) ticket_->Finished();
    SendCall::OnDone();
  }

  void OnRequest(bool ok) {
    if (!ok) {
      return Fail(absl::InvalidArgumentError("the first message of Fetch must be the request"));
    }
    const absl::Status joined = JoinReads();
    if (!joined.ok()) return Fail(joined);
    const absl::Status decoded = DecodeMessage(&request_bytes_, &request_);
    if (!decoded.ok()) return Fail(decoded);
    absl::StatusOr<std::unique_ptr<Tickets::Use>> ticket =
        bulk_->service->sessions->tickets().Begin(request_.ticket(), ClaimOf(request_));
    if (!ticket.ok()) return Fail(ticket.status());
    ticket_ = *std::move(ticket);
    SendSpec();
    AwaitTensor();
  }

  void SendSpec() {
    v1::TensorSpec spec;
    ToProto(ticket_->tensor()->spec(), &spec);
    first_ = false;
    writing_ = true;
    StartWrite(EncodeReadResponse(&spec, request_.offset(), grpc::Slice()));
  }

  // Returns the part that the tensor's upload has reported. If the tensor is done, or no upload
  // fills it, the part is empty.
  ReceivedPart Received() const {
    const UploadState* const upload = ticket_->tensor()->upload();
    return upload == nullptr ? ReceivedPart() : upload->received();
  }

  // Runs `waiter` when more than `bytes` bytes of the tensor have been received, or it is done.
  void WhenReceived(int64_t bytes, std::function<void()> waiter) {
    Tensor& tensor = *ticket_->tensor();
    if (tensor.upload() == nullptr) return tensor.WhenDone(std::move(waiter));
    tensor.upload()->WhenReceived(bytes, std::move(waiter));
  }

  void AwaitTensor() {
    const auto start = [this](auto on_readable) {
      const std::weak_ptr<Tensor> weak = ticket_->tensor();
      WhenReceived(request_.offset(), [engine = bulk_->service->engine, weak, on_readable] {
        const TensorRef tensor = weak.lock();
        if (tensor == nullptr || !tensor->done()) return on_readable(absl::OkStatus());
        engine->WhenReadable(tensor, on_readable);
      });
    };
    Wait(start, [this](const absl::Status& readable) {
      readable_ = readable;
      BeginSending();
    });
  }

  // The last chunk is sent only when the tensor is done, because the tensor may fail until then.
  int64_t AvailableEnd() override {
    const int64_t size = ticket_->tensor()->spec().size_bytes();
    const int64_t received = Received().bytes;
    if (received < size) return std::max(received, next_offset());
    return std::max((size - 1) / kChunkBytes * kChunkBytes, next_offset());
  }

  void AwaitMore() override {
    const auto start = [this](auto on_more) {
      const TensorRef& tensor = ticket_->tensor();
      if (Received().bytes < tensor->spec().size_bytes()) {
        WhenReceived(next_offset(), on_more);
      } else {
        tensor->WhenDone(on_more);
      }
    };
    Wait(start, [this] { SendNext(); });
  }

  // Chooses the route and begins to send, once the first requested byte is readable.
  void BeginSending() {
    if (!readable_.ok()) return FailWithTensor(readable_);
    const TensorRef& tensor = ticket_->tensor();
    const int64_t size = tensor->spec().size_bytes();
    if (request_.offset() < 0 || request_.offset() > size || request_.limit_bytes() < 0) {
      return Fail(absl::OutOfRangeError("the requested range isn't inside the tensor"));
    }
    // If the tensor has become done meanwhile, Received() is empty, and SetRange() uses the
    // tensor's own buffer.
    BufferRef received = Received().buffer;
    if (received == nullptr && !tensor->done()) return AwaitTensor();
    if (route_ == Route::kUnknown) {
      const std::string& here = bulk_->service->boot_id;
      const bool shares = !here.empty() && request_.boot_id() == here &&
                          request_.limit_bytes() == 0 &&
                          size - request_.offset() >= kMinSharedBytes;
      if (shares) return OpenRing();
      route_ = Route::kMessages;
    }
    const int64_t left = size - request_.offset();
    const int64_t wanted =
        request_.limit_bytes() > 0 ? std::min(left, request_.limit_bytes()) : left;
    SetRange(tensor, request_.offset(), request_.offset() + wanted, std::move(received));
    SendNext();
  }

  void SendNext() override { return route_ == Route::kRing ? FillSlots() : SendCall::SendNext(); }

  // A worker opens the ring, because allocating its memory may block.
  void OpenRing() {
    route_ = Route::kOpening;
    RunByWorker(
        [this] {
          auto ring = bulk_->rings.OpenForFetch(ticket_->session_id(), ticket_->principal());
          if (ring.ok()) ring_ = *std::move(ring);
          return absl::OkStatus();  // without a ring, the bytes go in messages
        },
        [this] { OfferRing(); });
  }

  void OfferRing() {
    if (ring_ == nullptr) {
      route_ = Route::kMessages;
      return BeginSending();
    }
    route_ = Route::kOffered;
    ring_slots_ = RingSlots(ring_->slots());
    v1::FetchResponse offer;
    offer.set_offset(request_.offset());
    ring_->Describe(offer.mutable_ring());
    Send(offer);
    last_answer_time_ = Clock::now();
    SetTimer();
    StartRead(&request_bytes_);
  }

  // Handles the destination's answer to the offered ring, or to a filled slot.
  void OnAnswer(bool ok) {
    if (!ok) return FailWhenIdle(ClientDisconnected());
    v1::FetchRequest answer;
    const absl::Status decoded = DecodeMessage(&request_bytes_, &answer);
    if (!decoded.ok()) return FailWhenIdle(decoded);
    last_answer_time_ = Clock::now();
    if (route_ == Route::kRing && answer.has_slot()) {
      const absl::Status due = ring_slots_.HandleReturn(answer.slot());
      if (!due.ok()) return FailWhenIdle(due);
      StartRead(&request_bytes_);
      return SendNext();
    }
    if (route_ != Route::kOffered || !answer.has_ring_mapped()) {
      return FailWhenIdle(absl::InvalidArgumentError(
          "unexpected message of Fetch: the request comes first, then ring_mapped, then one "
          "message for each returned slot"));
    }
    if (answer.ring_mapped()) {
      route_ = Route::kRing;
      StartRead(&request_bytes_);
    } else {
      route_ = Route::kMessages;
      ring_.reset();
    }
    BeginSending();
  }

  // Fills free slots with the bytes that may be sent. Once all bytes are sent and all slots are
  // returned, ends the call.
  void FillSlots() {
    if (finished() || busy() || FailIfTensorFailed()) return;
    while (ring_slots_.any_free()) {
      const int64_t bytes = std::min(ring_->slot_bytes(), SendableBytes());
      if (bytes == 0) break;
      const auto fill = [this, bytes] {
        return buffer()->device().Read(*buffer(), next_offset(), ring_->slot(ring_slots_.next()),
                                       bytes);
      };
      if (!buffer()->device().host_accessible()) {
        return RunByWorker(fill, [this, bytes] {
          SlotFilled(bytes);
          SendNext();
        });
      }
      const absl::Status filled = fill();
      if (!filled.ok()) return Fail(filled);
      SlotFilled(bytes);
    }
    if (next_offset() == end()) {
      if (ring_slots_.out() == 0) Succeed();
    } else if (ring_slots_.any_free()) {
      AwaitMore();
    }
  }

  void SlotFilled(int64_t bytes) {
    if (ring_slots_.out() == 0) last_answer_time_ = Clock::now();  // no answer was outstanding
    v1::FetchResponse response;
    response.set_offset(next_offset());
    response.mutable_slot()->set_slot(ring_slots_.next());
    response.mutable_slot()->set_bytes(bytes);
    ring_slots_.Filled();
    Sent(bytes);
    Send(response);
  }

  // Sends the message, after those that are queued. The queue holds at most the offer and one
  // message for each slot.
  void Send(const v1::FetchResponse& response) {
    queued_.push_back(EncodeMessage(response));
    SendQueued();
  }

  void SendQueued() {
    if (finished() || writing_ || queued_.empty()) return;
    writing_ = true;
    StartWrite(queued_.front());
    queued_.pop_front();
  }

  void SetTimer() {
    const auto left = last_answer_time_ + bulk_->service->peers->timeout() - Clock::now();
    timer_.Set(queue()->get(),
               std::chrono::system_clock::now() +
                   std::chrono::ceil<std::chrono::system_clock::duration>(left),
               timeout_event_.Begin(std::static_pointer_cast<FetchCall>(shared_from_this())));
  }

  // If the destination hasn't answered for too long, ends the call, so that the ring's memory is
  // freed.
  void OnTimeout(bool ok) {
    if (!ok || finished() || route_ == Route::kMessages) return;
    const bool awaits_answer = route_ == Route::kOffered || ring_slots_.out() > 0;
    const auto now = Clock::now();
    if (!awaits_answer) last_answer_time_ = now;
    const auto timeout = bulk_->service->peers->timeout();
    if (now - last_answer_time_ < timeout) return SetTimer();
    FailWhenIdle(absl::DeadlineExceededError(absl::StrCat(
        "the destination hasn't answered about the shared memory for ", timeout.count(), " s")));
  }

  void Fail(const absl::Status& status) override {
    timer_.Cancel();
    SendCall::Fail(status);
  }

  void FailWithTensor(const absl::Status& status) override {
    if (!finished()) context().AddTrailingMetadata(kTensorErrorKey, "1");
    Fail(status);
  }

  grpc::ByteBuffer request_bytes_;
  v1::FetchRequest request_;
  std::unique_ptr<Tickets::Use> ticket_;
  absl::Status readable_;

  Route route_ = Route::kUnknown;
  std::unique_ptr<SharedRings::Ring> ring_;
  RingSlots ring_slots_;
  std::deque<grpc::ByteBuffer> queued_;
  Clock::time_point last_answer_time_;  // or when the oldest answer fell due
  CallEvent<FetchCall> timeout_event_{&FetchCall::OnTimeout};
  grpc::Alarm timer_;
};

}  // namespace

CallFactory MakeFetchFactory(BulkContext* context) { return MakeCallFactory<FetchCall>(context); }

}  // namespace tensord::server
