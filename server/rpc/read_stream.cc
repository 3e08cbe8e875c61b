// Read: a tensor's memory to the wire, chunk by chunk.
#include <algorithm>
#include <optional>
#include <utility>

#include "tensord/server/rpc/bulk_call.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/status_convert.h"
#include "tensord/server/rpc/wait_for_tensor.h"

namespace tensord::server {
namespace {

// Fits a core's cache on its way from one buffer to the next.
constexpr int64_t kChunkBytes = 512 << 10;

// One chunk is on its way while the next is read from the device: no more than two are held, and
// none where the host can reach the tensor's memory.
class ReadCall final : public BulkCall {
 public:
  ReadCall(BulkContext* bulk, CallQueue* queue) : BulkCall(bulk, queue), writer_(&context()) {
    bulk_->rpc->RequestRead(&context(), &request_bytes_, &writer_, queue->get(), queue->arrivals(),
                            Begin(kCalled));
  }

  ~ReadCall() override {
    if (!counted_) return;
    MutexLock lock(&bulk_->mu);
    if (--bulk_->reads == 0) bulk_->reads_ended.SignalAll();
  }

 private:
  void AwaitNext() override { AwaitRead(bulk_, queue()); }

  void On(Step step, bool ok) override {
    switch (step) {
      case kCalled:
        return AwaitTensor();
      case kWoken:
        if (!GoesOn()) return;
        return begun_ ? GoOn() : BeginRange();
      case kWritten:
        writing_ = false;
        return ok ? GoOn() : Fail(ClientGone());
      case kDone:
        if (CancelledWait()) Fail(ClientGone());
        return;
      default:
        return;
    }
  }

  // False where the server is shutting down.
  bool Enter() {
    MutexLock lock(&bulk_->mu);
    if (bulk_->draining) return false;
    ++bulk_->reads;
    counted_ = true;
    return true;
  }

  void AwaitTensor() {
    if (!Enter()) return Fail(absl::UnavailableError("the server is shutting down"));
    v1::ReadRequest request;
    const absl::Status decoded = DecodeMessage(&request_bytes_, &request);
    if (!decoded.ok()) return Fail(decoded);
    absl::StatusOr<SessionUse> use = bulk_->service->sessions->Use(principal(), request.session());
    if (!use.ok()) return Fail(use.status());
    Trust();
    session_ = *std::move(use);
    offset_ = request.offset();
    limit_ = request.limit_bytes();
    const absl::Status begun = Wait([&](const CancellableWait& wait) {
      WaitUntilReadable(bulk_->service->engine, session_.ref(), request.after_command(),
                        request.handle(), [this, wait](const absl::StatusOr<TensorRef>& tensor) {
                          if (!wait.End()) return;  // this call may be gone
                          outcome_ = tensor.status();
                          if (tensor.ok()) tensor_ = *tensor;
                          Wake();
                        });
    });
    if (!begun.ok()) Fail(begun);
  }

  void BeginRange() {
    const absl::StatusOr<int64_t> end = ReadEnd(*tensor_, offset_, limit_);
    if (!end.ok()) return Fail(end.status());
    end_ = *end;
    begun_ = true;
    GoOn();
  }

  // Sends the chunk that is there and sees to the next.
  void GoOn() {
    if (finished_) return;
    if (!tensor_->status().ok()) return Fail(tensor_->status());
    if (!busy_ && !chunk_.has_value()) Prepare();
    if (writing_ || busy_ || !chunk_.has_value()) return;
    v1::TensorSpec spec;
    if (first_) ToProto(tensor_->spec(), &spec);
    const int64_t bytes = static_cast<int64_t>(chunk_->size());
    const grpc::ByteBuffer message = EncodeReadResponse(first_ ? &spec : nullptr, offset_, *chunk_);
    first_ = false;
    offset_ += bytes;
    chunk_.reset();
    if (offset_ == end_) {
      finished_ = true;
      writer_.WriteAndFinish(message, grpc::WriteOptions(), grpc::Status::OK, Begin(kFinished));
      return;
    }
    writing_ = true;
    writer_.Write(message, Begin(kWritten));
    Prepare();
  }

  // Has chunk_ made for offset_, now or when the device has given it.
  void Prepare() {
    const int64_t bytes = std::min(kChunkBytes, end_ - offset_);
    if (bytes == 0) {
      chunk_ = grpc::Slice();
    } else if (tensor_->device().host_accessible()) {
      chunk_ = bulk_->lent.Lend(tensor_->buffer(), offset_, bytes);
    } else {
      RunByWorker([this, bytes] {
        grpc::Slice staging(bytes);
        const absl::Status read = tensor_->device().Read(
            *tensor_->buffer(), offset_, const_cast<uint8_t*>(staging.begin()), bytes);
        chunk_ = std::move(staging);
        return read;
      });
    }
  }

  void Fail(const absl::Status& status) override {
    if (finished_) return;
    finished_ = true;
    writer_.Finish(ToGrpc(status), Begin(kFinished));
  }

  grpc::ServerAsyncWriter<grpc::ByteBuffer> writer_;
  grpc::ByteBuffer request_bytes_;
  SessionUse session_;
  TensorRef tensor_;
  std::optional<grpc::Slice> chunk_;  // what goes out next
  int64_t offset_ = 0;                // of that
  int64_t limit_ = 0;
  int64_t end_ = 0;
  bool counted_ = false;
  bool begun_ = false;
  bool first_ = true;
  bool writing_ = false;
};

}  // namespace

void AwaitRead(BulkContext* context, CallQueue* queue) { new ReadCall(context, queue); }

}  // namespace tensord::server
