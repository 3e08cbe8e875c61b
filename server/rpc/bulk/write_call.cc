// The handler of Write, which stores received chunks in a tensor's memory.
#include <string>
#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/rpc/bulk/upload_call.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/proto_convert.h"

namespace tensord::server {
namespace {

class WriteCall final : public UploadCall {
 public:
  WriteCall(BulkContext* bulk, std::unique_ptr<GrpcCall> grpc_call)
      : UploadCall(bulk, std::move(grpc_call)), upload_(bulk->service) {}

 private:
  void OnMessage() override {
    absl::StatusOr<WriteChunk> chunk = DecodeWriteRequest(message());
    if (!chunk.ok()) return Fail(chunk.status());
    chunk_ = *std::move(chunk);
    if (!upload_.begun()) {
      Begin();
    } else if (chunk_.has_spec) {
      Fail(absl::InvalidArgumentError("only the first message of a Write may carry a spec"));
    } else {
      StoreChunk();
    }
  }

  void Begin() {
    if (!chunk_.has_spec) {
      return Fail(absl::InvalidArgumentError("the first message of a Write must carry its spec"));
    }
    BeginUpload(&upload_, chunk_.spec, [this](const absl::Status& begun) {
      return begun.ok() ? StoreChunk() : Fail(begun);
    });
  }

  void StoreChunk() {
    if (chunk_.data_bytes == 0) return ProcessNext();
    const absl::Status status = upload_.Check(chunk_.offset, chunk_.data_bytes);
    if (!status.ok()) return Fail(status);
    if (upload_.host_accessible()) {
      CopyOut(message(), chunk_.data_position, chunk_.data_bytes, upload_.destination());
      upload_.Advance(chunk_.data_bytes);
      message()->Clear();
      return ProcessNext();
    }
    RunByWorker(
        [this] {
          return upload_.WriteBy(chunk_.data_bytes, [this](int64_t at, int64_t size, void* to) {
            CopyOut(message(), chunk_.data_position + at, size, to);
          });
        },
        [this] { ProcessNext(); });
  }

  void OnLastMessage() override {
    if (!upload_.begun()) {
      return Fail(
          absl::InvalidArgumentError("the Write has no message; the first must carry the spec"));
    }
    if (upload_.resumable() && upload_.written_bytes() < upload_.size_bytes()) return Interrupt();
    const absl::StatusOr<TensorRef> tensor = upload_.Finish();
    if (!tensor.ok()) return Fail(tensor.status());
    v1::Tensor response;
    ToProto(**tensor, &response);
    FinishWith(EncodeMessage(response));
  }

  void OnWaitCancelled() override { Interrupt(); }

  void Interrupt() {
    upload_.Interrupt();
    Fail(absl::AbortedError("the stream ended before the tensor's last byte"));
  }

  void Fail(const absl::Status& status) override {
    if (finished()) return;
    upload_.Fail(status);
    Finish(status);
  }

  TensorUpload upload_;
  WriteChunk chunk_;  // the decoded message()
};

}  // namespace

CallFactory MakeWriteFactory(BulkContext* context) { return MakeCallFactory<WriteCall>(context); }

}  // namespace tensord::server
