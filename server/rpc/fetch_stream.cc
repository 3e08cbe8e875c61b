// Fetch: a tensor's elements for another server that shows a ticket.
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
      bulk_->service->engine->WhenReadable(ticket_->tensor(),
                                           [this, wait](const absl::Status& readable) {
                                             if (!wait.End()) return;  // this call may be gone
                                             readable_ = readable;
                                             Wake();
                                           });
    });
    if (!waiting.ok()) Fail(waiting);
  }

  void BeginWanted() {
    if (!readable_.ok()) return FailWithTensor(readable_);
    const int64_t size = ticket_->tensor()->spec().size_bytes();
    if (request_.offset() < 0 || request_.offset() > size) {
      return Fail(absl::OutOfRangeError("the tensor doesn't reach as far as what is asked for"));
    }
    BeginRange(ticket_->tensor(), request_.offset(), size);
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
