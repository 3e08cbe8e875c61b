// Write: chunks from the wire into a tensor's memory.
#include <string>
#include <utility>

#include "tensord/common/status_macros.h"
#include "tensord/server/rpc/bulk_service.h"
#include "tensord/server/rpc/cancellable_wait.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/status_convert.h"
#include "tensord/server/rpc/tensor_upload.h"

namespace tensord::server {
namespace {

// One message lands while gRPC brings in the next: no more than two are held.
class WriteCall final : public QueuedCall {
 public:
  WriteCall(BulkContext* bulk, CallQueue* queue)
      : QueuedCall(queue), bulk_(bulk), reader_(&context()), upload_(bulk->service) {
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
        busy_ = false;
        return Woken();
      case kDone:
        if (context().IsCancelled() && wait_.Cancel()) {
          Abandon(kWoken);
          BreakOff();
        }
        return;
      default:
        return;
    }
  }

  void Refuse(const absl::Status& status) override {
    if (finished_) return;
    if (busy_ && !wait_.Cancel()) {
      refused_ = status;  // kWoken is on its way
      return;
    }
    if (busy_) Abandon(kWoken);
    busy_ = false;
    Fail(status);
  }

  void StartRead() { reader_.Read(&incoming_, QueuedCall::Begin(kRead)); }

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
    if (!wait_.Begin()) {
      Fail(absl::CancelledError("the client has gone"));
      return;
    }
    busy_ = true;
    QueuedCall::Begin(kWoken);
    const absl::Status waiting =
        upload_.Await(principal(), chunk_.spec, [this, wait = wait_](const absl::Status& received) {
          if (!wait.End()) return;
          outcome_ = received;
          Wake();
        });
    if (waiting.ok()) Trust();
    if (!waiting.ok() && wait_.End()) {
      Abandon(kWoken);
      Fail(waiting);
    }
  }

  // The session's stream is there, or a device has taken a chunk.
  void Woken() {
    if (finished_) return;
    if (!refused_.ok()) return Fail(refused_);
    if (outcome_.ok() && !upload_.begun()) {
      outcome_ = upload_.Begin(chunk_.spec, [this] { context().TryCancel(); });
      if (outcome_.ok()) return Land();
    }
    if (!outcome_.ok()) return Fail(outcome_);
    GoOn();
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
    busy_ = true;
    QueuedCall::Begin(kWoken);
    bulk_->service->workers->Post([this] {  // may wait for the device
      staging_.resize(chunk_.data_bytes);
      CopyOut(&message_, chunk_.data_position, chunk_.data_bytes, staging_.data());
      outcome_ = upload_.Write(staging_.data(), chunk_.data_bytes);
      Wake();
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
    reader_.Finish(EncodeMessage(response), grpc::Status::OK, QueuedCall::Begin(kFinished));
  }

  void BreakOff() {
    upload_.BreakOff();
    Fail(absl::AbortedError("the stream ended before the tensor's last byte"));
  }

  void Fail(const absl::Status& status) {
    if (finished_) return;
    upload_.Fail(status);
    finished_ = true;
    reader_.FinishWithError(ToGrpc(status), QueuedCall::Begin(kFinished));
  }

  BulkContext* const bulk_;
  grpc::ServerAsyncReader<grpc::ByteBuffer, grpc::ByteBuffer> reader_;
  TensorUpload upload_;
  CancellableWait wait_;  // for the session's stream; else a broken stream ends the call
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer message_;  // what is being landed, and what it says
  WriteChunk chunk_;
  std::string staging_;   // for devices whose memory the host can't reach
  absl::Status outcome_;  // of what the call was busy with
  absl::Status refused_;  // meanwhile
  bool has_incoming_ = false;
  bool all_read_ = false;
  bool busy_ = false;  // waits for kWoken
  bool finished_ = false;
};

}  // namespace

void AwaitWrite(BulkContext* context, CallQueue* queue) { new WriteCall(context, queue); }

}  // namespace tensord::server
