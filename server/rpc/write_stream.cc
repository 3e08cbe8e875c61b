// Write: chunks from the wire into a tensor's memory.
#include <string>
#include <utility>

#include "tensord/common/status_macros.h"
#include "tensord/server/rpc/bulk_call.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/status_convert.h"
#include "tensord/server/rpc/tensor_upload.h"

namespace tensord::server {
namespace {

// One message lands while gRPC brings in the next: no more than two are held.
class WriteCall final : public BulkCall {
 public:
  WriteCall(BulkContext* bulk, CallQueue* queue)
      : BulkCall(bulk, queue), reader_(&context()), upload_(bulk->service) {
    bulk_->rpc->RequestWrite(&context(), &reader_, queue->get(), queue->arrivals(), Begin(kCalled));
  }

 private:
  void AwaitNext() override { AwaitWrite(bulk_, queue()); }

  void On(Step step, bool ok) override {
    switch (step) {
      case kCalled:
        return StartRead();
      case kRead:
        has_incoming_ = true;
        all_read_ = !ok;
        return GoOn();
      case kWoken:
        if (GoesOn()) Woken();
        return;
      case kDone:
        if (CancelledWait()) BreakOff();
        return;
      default:
        return;
    }
  }

  void StartRead() { reader_.Read(&incoming_, Begin(kRead)); }

  // Takes up what has come in, where nothing is under way with what came before.
  void GoOn() {
    if (finished_ || busy_ || !has_incoming_) return;
    has_incoming_ = false;
    if (all_read_) {
      End();
      return;
    }
    message_.Swap(&incoming_);
    incoming_.Clear();
    RequestReceived(message_.Length());
    StartRead();
    absl::StatusOr<WriteChunk> chunk = DecodeWriteRequest(&message_);
    if (!chunk.ok()) {
      Fail(chunk.status());
      return;
    }
    chunk_ = *std::move(chunk);
    if (!upload_.begun()) {
      AwaitSession();
    } else if (chunk_.has_spec) {
      Fail(absl::InvalidArgumentError("only the first message of a Write may carry a spec"));
    } else {
      Land();
    }
  }

  void AwaitSession() {
    if (!chunk_.has_spec) {
      Fail(absl::InvalidArgumentError("the first message of a Write must carry its spec"));
      return;
    }
    const absl::Status begun = Wait([this](const CancellableWait& wait) {
      const auto ended = [this, wait](const absl::Status& received) {
        if (!wait.End()) return;  // this call may be gone
        outcome_ = received;
        Wake();
      };
      const absl::Status waiting = upload_.Await(principal(), chunk_.spec, ended);
      if (waiting.ok()) SessionUsed();
      if (!waiting.ok()) ended(waiting);
    });
    if (!begun.ok()) Fail(begun);
  }

  // The session's stream is there, or a device has taken a chunk.
  void Woken() {
    if (upload_.begun()) return GoOn();
    const absl::Status begun = upload_.Begin(chunk_.spec, [this] { context().TryCancel(); });
    return begun.ok() ? Land() : Fail(begun);
  }

  void Land() {
    if (chunk_.data_bytes == 0) return GoOn();
    const absl::Status status = upload_.Check(chunk_.offset, chunk_.data_bytes);
    if (!status.ok()) return Fail(status);
    if (upload_.host_accessible()) {
      CopyOut(&message_, chunk_.data_position, chunk_.data_bytes, upload_.destination());
      upload_.Advance(chunk_.data_bytes);
      message_.Clear();
      return GoOn();
    }
    RunByWorker([this] {
      return upload_.WriteBy(chunk_.data_bytes, [this](int64_t at, int64_t size, void* to) {
        CopyOut(&message_, chunk_.data_position + at, size, to);
      });
    });
  }

  // The client has said all, or has gone.
  void End() {
    if (!upload_.begun()) {
      Fail(absl::InvalidArgumentError("a Write without messages; the first carries the spec"));
      return;
    }
    if (upload_.resumable() && upload_.written_bytes() < upload_.size_bytes()) return BreakOff();
    const absl::StatusOr<TensorRef> tensor = upload_.Finish();
    if (!tensor.ok()) {
      Fail(tensor.status());
      return;
    }
    v1::Tensor response;
    ToProto(**tensor, &response);
    finished_ = true;
    reader_.Finish(EncodeMessage(response), grpc::Status::OK, Begin(kFinished));
  }

  void BreakOff() {
    upload_.BreakOff();
    Fail(absl::AbortedError("the stream ended before the tensor's last byte"));
  }

  void Fail(const absl::Status& status) override {
    if (finished_) return;
    upload_.Fail(status);
    finished_ = true;
    reader_.FinishWithError(ToGrpc(status), Begin(kFinished));
  }

  grpc::ServerAsyncReader<grpc::ByteBuffer, grpc::ByteBuffer> reader_;
  TensorUpload upload_;
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer message_;  // what is being landed, and what it says
  WriteChunk chunk_;
  bool has_incoming_ = false;
  bool all_read_ = false;
};

}  // namespace

void AwaitWrite(BulkContext* context, CallQueue* queue) { new WriteCall(context, queue); }

}  // namespace tensord::server
