// Fetch: a tensor's elements for another server that shows a ticket, in messages or by memory.
#include "tensord/server/rpc/peer/fetch_call.h"

#include <grpcpp/alarm.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/server/rpc/bulk/send_call.h"
#include "tensord/server/rpc/bulk/slot_turns.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/peer/peers.h"
#include "tensord/server/rpc/proto_convert.h"

namespace tensord::server {
namespace {

// It says at once, by the tensor's spec, that the ticket was good; then it waits for the tensor,
// for as long as that may take. It doesn't keep the tensor's session in use: who waits for a tensor
// that never comes goes when their own client does.
class FetchCall final : public SendCall {
 public:
  using SendCall::SendCall;

 private:
  friend class CallEvent<FetchCall>;
  using Clock = std::chrono::steady_clock;

  // How the bytes go.
  enum class Way {
    kUnknown,   // the tensor isn't there
    kOpening,   // a worker makes a ring
    kOffered,   // and the destination has been asked whether it can map it
    kRing,      // it can
    kMessages,  // it can't, or nobody wants it to
  };

  void OnAdmitted() override {
    const absl::Status caller = bulk_->service->peers->CheckCaller(*principal());
    if (!caller.ok()) return Fail(caller);
    StartRead(&request_bytes_);
  }

  void OnRead(bool ok) override {
    if (finished()) return;
    return ticket_ == nullptr ? Begun(ok) : Answered(ok);
  }

  void OnWritten(bool ok) override {
    writing_ = false;
    if (!ok) return Fail(ClientGone());
    SendQueued();
    if (begun()) SendNext();
  }

  void OnDone() override {
    timer_.Cancel();
    if (sent_all() && request_.limit_bytes() == 0 && !cancelled()) ticket_->Finished();
    SendCall::OnDone();
  }

  void Begun(bool ok) {
    if (!ok) return Fail(absl::InvalidArgumentError("a fetch begins with what is wanted"));
    const absl::Status joined = JoinReads();
    if (!joined.ok()) return Fail(joined);
    const absl::Status decoded = DecodeMessage(&request_bytes_, &request_);
    if (!decoded.ok()) return Fail(decoded);
    absl::StatusOr<std::unique_ptr<Tickets::Use>> ticket =
        bulk_->service->sessions->tickets().Begin(
            request_.ticket(), {.destination_epoch = request_.destination_epoch(),
                                .principal_kind = request_.principal_kind(),
                                .principal_name = request_.principal_name(),
                                .fetch_id = request_.fetch_id()});
    if (!ticket.ok()) return Fail(ticket.status());
    SessionUsed();
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

  void AwaitTensor() {
    const auto start = [this](auto on_readable) {
      const std::weak_ptr<Tensor> weak = ticket_->tensor();
      ticket_->tensor()->WhenReceived(request_.offset(),
                                      [engine = bulk_->service->engine, weak, on_readable] {
                                        const TensorRef tensor = weak.lock();
                                        if (tensor == nullptr || !tensor->done())
                                          return on_readable(absl::OkStatus());
                                        engine->WhenReadable(tensor, on_readable);
                                      });
    };
    Wait(start, [this](const absl::Status& readable) {
      readable_ = readable;
      BeginWanted();
    });
  }

  // Its last chunk goes out when it is done: until then it may fail.
  int64_t AvailableEnd() override {
    const int64_t size = ticket_->tensor()->spec().size_bytes();
    const int64_t received = ticket_->tensor()->received().bytes;
    if (received < size) return std::max(received, next_offset());
    return std::max((size - 1) / kChunkBytes * kChunkBytes, next_offset());
  }

  void AwaitMore() override {
    const auto start = [this](auto on_more) {
      const TensorRef& tensor = ticket_->tensor();
      if (tensor->received().bytes < tensor->spec().size_bytes()) {
        tensor->WhenReceived(next_offset(), on_more);
      } else {
        tensor->WhenDone(on_more);
      }
    };
    Wait(start, [this] { SendNext(); });
  }

  void BeginWanted() {
    if (!readable_.ok()) return FailWithTensor(readable_);
    const TensorRef& tensor = ticket_->tensor();
    const int64_t size = tensor->spec().size_bytes();
    if (request_.offset() < 0 || request_.offset() > size || request_.limit_bytes() < 0) {
      return Fail(absl::OutOfRangeError("the tensor doesn't reach as far as what is asked for"));
    }
    // What is done meanwhile has nothing received any more.
    BufferRef received = tensor->received().buffer;
    if (received == nullptr && !tensor->done()) return AwaitTensor();
    if (way_ == Way::kUnknown) {
      const std::string& here = bulk_->service->boot_id;
      const bool shares = !here.empty() && request_.boot_id() == here &&
                          request_.limit_bytes() == 0 &&
                          size - request_.offset() >= kMinSharedBytes;
      if (shares) return OpenRing();
      way_ = Way::kMessages;
    }
    const int64_t left = size - request_.offset();
    const int64_t wanted =
        request_.limit_bytes() > 0 ? std::min(left, request_.limit_bytes()) : left;
    SetRange(tensor, request_.offset(), request_.offset() + wanted, std::move(received));
    SendNext();
  }

  void SendNext() override { return way_ == Way::kRing ? FillSlots() : SendCall::SendNext(); }

  // Whose memory is allocated here, a page at a time.
  void OpenRing() {
    way_ = Way::kOpening;
    RunByWorker(
        [this] {
          auto ring = bulk_->rings.OpenForFetch(ticket_->session_id());
          if (ring.ok()) ring_ = *std::move(ring);
          return absl::OkStatus();  // without one it goes by messages
        },
        [this] { Offer(); });
  }

  void Offer() {
    if (ring_ == nullptr) {
      way_ = Way::kMessages;
      return BeginWanted();
    }
    way_ = Way::kOffered;
    turns_ = SlotTurns(ring_->slots());
    v1::FetchResponse offer;
    offer.set_offset(request_.offset());
    ring_->Describe(offer.mutable_ring());
    Send(offer);
    heard_ = Clock::now();
    SetTimer();
    StartRead(&request_bytes_);
  }

  // What the destination says of the ring, or of a slot.
  void Answered(bool ok) {
    if (!ok) return FailWhenIdle(ClientGone());
    v1::FetchRequest answer;
    const absl::Status decoded = DecodeMessage(&request_bytes_, &answer);
    if (!decoded.ok()) return FailWhenIdle(decoded);
    heard_ = Clock::now();
    if (way_ == Way::kRing && answer.has_slot()) {
      const absl::Status due = turns_.GiveBack(answer.slot());
      if (!due.ok()) return FailWhenIdle(due);
      StartRead(&request_bytes_);
      return SendNext();
    }
    if (way_ != Way::kOffered || !answer.has_ring_mapped()) {
      return FailWhenIdle(absl::InvalidArgumentError(
          "a message of Fetch that isn't due: first what is wanted, then whether the ring is "
          "mapped, then its slots"));
    }
    if (answer.ring_mapped()) {
      way_ = Way::kRing;
      StartRead(&request_bytes_);
    } else {
      way_ = Way::kMessages;
      ring_.reset();
    }
    BeginWanted();
  }

  void FillSlots() {
    if (finished() || busy() || FailIfTensorFailed()) return;
    while (turns_.any_free()) {
      const int64_t bytes = std::min(ring_->slot_bytes(), SendableBytes());
      if (bytes == 0) break;
      const auto fill = [this, bytes] {
        return buffer()->device().Read(*buffer(), next_offset(), ring_->slot(turns_.next()), bytes);
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
      if (turns_.out() == 0) Succeed();
    } else if (turns_.any_free()) {
      AwaitMore();
    }
  }

  void SlotFilled(int64_t bytes) {
    if (turns_.out() == 0) heard_ = Clock::now();  // the destination owes us nothing until now
    v1::FetchResponse response;
    response.set_offset(next_offset());
    response.mutable_slot()->set_slot(turns_.next());
    response.mutable_slot()->set_bytes(bytes);
    turns_.Filled();
    Sent(bytes);
    Send(response);
  }

  // At most one message for each slot waits.
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
    const auto left = heard_ + bulk_->service->peers->timeout() - Clock::now();
    timer_.Set(queue()->get(),
               std::chrono::system_clock::now() +
                   std::chrono::ceil<std::chrono::system_clock::duration>(left),
               time_.Begin(std::static_pointer_cast<FetchCall>(shared_from_this())));
  }

  // Memory isn't held for a destination that says nothing.
  void OnTime(bool ok) {
    if (!ok || finished() || way_ == Way::kMessages) return;
    const bool owes = way_ == Way::kOffered || turns_.out() > 0;
    const auto now = Clock::now();
    if (!owes) heard_ = now;
    const auto timeout = bulk_->service->peers->timeout();
    if (now - heard_ < timeout) return SetTimer();
    FailWhenIdle(absl::DeadlineExceededError(absl::StrCat(
        "nothing was heard of the ring of shared memory for ", timeout.count(), " s")));
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

  Way way_ = Way::kUnknown;
  std::unique_ptr<SharedRings::Ring> ring_;
  SlotTurns turns_;
  std::deque<grpc::ByteBuffer> queued_;
  Clock::time_point heard_;  // when the destination last said something, or began to owe it
  CallEvent<FetchCall> time_{&FetchCall::OnTime};
  grpc::Alarm timer_;
};

}  // namespace

CallFactory MakeFetchFactory(BulkContext* context) { return MakeCallFactory<FetchCall>(context); }

}  // namespace tensord::server
