// Fetch: a tensor's elements for another server that shows a ticket.
#include <algorithm>
#include <memory>
#include <utility>

#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/peers.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/send_call.h"

namespace tensord::server {
namespace {

// It says at once, by the tensor's spec, that the ticket was good; then it waits for the tensor,
// for as long as that may take. It doesn't keep the tensor's session in use: who waits for a tensor
// that never comes goes when their own client does.
class FetchCall final : public SendCall {
 public:
  FetchCall(BulkContext* bulk, CallQueue* queue) : SendCall(bulk, queue) {
    bulk_->peer_rpc->RequestFetch(&context(), &request_bytes_, &writer_, queue->get(),
                                  queue->arrivals(), Begin(kCalled));
  }

 private:
  void AwaitNext() override { AwaitFetch(bulk_, queue()); }

  void On(Step step, bool ok) override {
    switch (step) {
      case kCalled:
        return Arrived();
      case kWoken:
        if (!GoesOn()) return;
        return begun() ? GoOn() : BeginWanted();
      case kWritten:
        return Written(ok);
      case kDone:
        if (sent_all() && !context().IsCancelled()) ticket_->Finished();
        if (CancelledWait()) Fail(ClientGone());
        return;
      default:
        return;
    }
  }

  void Arrived() {
    if (!Enter()) return Fail(absl::UnavailableError("the server is shutting down"));
    const absl::Status caller = bulk_->service->peers->CheckCaller(*principal());
    if (!caller.ok()) return Fail(caller);
    const absl::Status decoded = DecodeMessage(&request_bytes_, &request_);
    if (!decoded.ok()) return Fail(decoded);
    absl::StatusOr<std::unique_ptr<Tickets::Use>> ticket =
        bulk_->service->sessions->tickets().Begin(
            request_.ticket(), {.destination_epoch = request_.destination_epoch(),
                                .principal_kind = request_.principal_kind(),
                                .principal_name = request_.principal_name(),
                                .fetch_id = request_.fetch_id()});
    if (!ticket.ok()) return Fail(ticket.status());
    Trust();
    ticket_ = *std::move(ticket);
    SendSpec();
    AwaitTensor();
  }

  void SendSpec() {
    v1::TensorSpec spec;
    ToProto(ticket_->tensor()->spec(), &spec);
    first_ = false;
    writing_ = true;
    writer_.Write(EncodeReadResponse(&spec, request_.offset(), grpc::Slice()), Begin(kWritten));
  }

  void AwaitTensor() {
    const absl::Status waiting = Wait([&](const CancellableWait& wait) {
      const auto ready = [this, wait](const absl::Status& readable) {
        if (!wait.End()) return;  // this call may be gone
        readable_ = readable;
        Wake();
      };
      const std::weak_ptr<Tensor> weak = ticket_->tensor();
      ticket_->tensor()->WhenReceived(request_.offset(),
                                      [engine = bulk_->service->engine, weak, ready] {
                                        const TensorRef tensor = weak.lock();
                                        if (tensor == nullptr || !tensor->done())
                                          return ready(absl::OkStatus());
                                        engine->WhenReadable(tensor, ready);
                                      });
    });
    if (!waiting.ok()) Fail(waiting);
  }

  // Its last chunk goes out when it is done: until then it may fail.
  int64_t Available() override {
    const int64_t size = ticket_->tensor()->spec().size_bytes();
    const int64_t received = ticket_->tensor()->received().bytes;
    if (received < size) return std::max(received, next_offset());
    return std::max((size - 1) / kChunkBytes * kChunkBytes, next_offset());
  }

  void AwaitMore() override {
    const TensorRef& tensor = ticket_->tensor();
    const absl::Status waiting = Wait([&](const CancellableWait& wait) {
      const auto woken = [this, wait] {
        if (wait.End()) Wake();
      };
      if (tensor->received().bytes < tensor->spec().size_bytes()) {
        tensor->WhenReceived(next_offset(), woken);
      } else {
        tensor->WhenDone(woken);
      }
    });
    if (!waiting.ok()) Fail(waiting);
  }

  void BeginWanted() {
    if (!readable_.ok()) return FailWithTensor(readable_);
    const TensorRef& tensor = ticket_->tensor();
    const int64_t size = tensor->spec().size_bytes();
    if (request_.offset() < 0 || request_.offset() > size) {
      return Fail(absl::OutOfRangeError("the tensor doesn't reach as far as what is asked for"));
    }
    // What is done meanwhile has nothing received any more.
    BufferRef received = tensor->received().buffer;
    if (received == nullptr && !tensor->done()) return AwaitTensor();
    BeginRange(tensor, request_.offset(), size, std::move(received));
  }

  void FailWithTensor(const absl::Status& status) override {
    if (!finished_) context().AddTrailingMetadata(kTensorErrorKey, "1");
    Fail(status);
  }

  v1::FetchRequest request_;
  std::unique_ptr<Tickets::Use> ticket_;
  absl::Status readable_;
};

}  // namespace

void AwaitFetch(BulkContext* context, CallQueue* queue) { new FetchCall(context, queue); }

}  // namespace tensord::server
