// Read: a tensor's elements for a client.
#include <utility>

#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/send_call.h"
#include "tensord/server/rpc/wait_for_tensor.h"

namespace tensord::server {
namespace {

class ReadCall final
    : public SendCallBy<grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> {
 public:
  ReadCall(BulkContext* bulk, CallQueue* queue) : SendCallBy(bulk, queue) {
    bulk_->rpc->RequestRead(&context(), &stream_, queue->get(), queue->arrivals(), Begin(kCalled));
  }

 private:
  void AwaitNext() override { AwaitRead(bulk_, queue()); }

  void On(Step step, bool ok) override {
    switch (step) {
      case kCalled:
        return stream_.Read(&request_bytes_, Begin(kRead));
      case kRead:
        if (!finished_) AwaitTensor(ok);
        return;
      case kWoken:
        if (!GoesOn()) return;
        return begun() ? GoOn() : BeginWanted();
      case kWritten:
        return Written(ok);
      case kDone:
        if (CancelledWait()) Fail(ClientGone());
        return;
      default:
        return;
    }
  }

  void AwaitTensor(bool has_request) {
    if (!has_request) return Fail(absl::InvalidArgumentError("the call has no request"));
    RequestReceived(request_bytes_.Length());
    if (!Enter()) return Fail(absl::UnavailableError("the server is shutting down"));
    v1::ReadRequest request;
    const absl::Status decoded = DecodeMessage(&request_bytes_, &request);
    if (!decoded.ok()) return Fail(decoded);
    absl::StatusOr<SessionUse> use = bulk_->service->sessions->Use(principal(), request.session());
    if (!use.ok()) return Fail(use.status());
    SessionUsed();
    session_ = *std::move(use);
    offset_ = request.offset();
    limit_ = request.limit_bytes();
    const absl::Status waiting = Wait([&](const CancellableWait& wait) {
      WaitUntilReadable(bulk_->service->engine, session_.ref(), request.after_command(),
                        request.handle(), [this, wait](const absl::StatusOr<TensorRef>& tensor) {
                          if (!wait.End()) return;  // this call may be gone
                          outcome_ = tensor.status();
                          if (tensor.ok()) tensor_ = *tensor;
                          Wake();
                        });
    });
    if (!waiting.ok()) Fail(waiting);
  }

  void BeginWanted() {
    const absl::StatusOr<int64_t> end = ReadEnd(*tensor_, offset_, limit_);
    if (!end.ok()) return Fail(end.status());
    SetRange(std::move(tensor_), offset_, *end);
    GoOn();
  }

  SessionUse session_;
  TensorRef tensor_;  // until it is sent
  int64_t offset_ = 0;
  int64_t limit_ = 0;
};

}  // namespace

void AwaitRead(BulkContext* context, CallQueue* queue) { new ReadCall(context, queue); }

}  // namespace tensord::server
