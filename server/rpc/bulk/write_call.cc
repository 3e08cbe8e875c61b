// The handler of Write, which stores received chunks in a tensor's memory.
#include <string>
#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/rpc/bulk/part_upload.h"
#include "tensord/server/rpc/bulk/tensor_upload.h"
#include "tensord/server/rpc/bulk/upload_call.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/server/rpc/proto_convert.h"

namespace tensord::server {
namespace {

class WriteCall final : public UploadCall {
 public:
  WriteCall(BulkContext* bulk, std::unique_ptr<GrpcCall> grpc_call)
      : UploadCall(bulk, std::move(grpc_call)), upload_(bulk->service), part_(bulk->service) {}

 private:
  void OnMessage() override {
    absl::StatusOr<WriteChunk> chunk = DecodeWriteRequest(message());
    if (!chunk.ok()) return Fail(chunk.status());
    chunk_ = *std::move(chunk);
    if (!begun()) {
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
    if (chunk_.spec.has_part()) {
      return BeginUpload(&part_, chunk_.spec, [this](const absl::Status& begun) {
        return begun.ok() ? StoreChunk() : Fail(begun);
      });
    }
    BeginUpload(&upload_, chunk_.spec, [this](const absl::Status& begun) {
      if (!begun.ok()) return Fail(begun);
      upload_.OpenParts();
      StoreChunk();
    });
  }

  bool begun() const { return upload_.begun() || part_.begun(); }

  void StoreChunk() {
    if (chunk_.data_bytes == 0) return ProcessNext();
    if (part_.begun()) return StoreChunkOfPart();
    const absl::Status status = upload_.Check(chunk_.offset, chunk_.data_bytes);
    if (!status.ok()) return Fail(status);
    if (upload_.host_accessible()) {
      CopyOut(message(), chunk_.data_position, chunk_.data_bytes, upload_.destination());
      upload_.Advance(chunk_.data_bytes);
      FreeMessage();
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

  void StoreChunkOfPart() {
    const auto write = [this] {
      return part_.Write(chunk_.offset, chunk_.data_bytes,
                         [this](int64_t at, int64_t size, void* to) {
                           CopyOut(message(), chunk_.data_position + at, size, to);
                         });
    };
    if (!part_.host_accessible()) return RunByWorker(write, [this] { ProcessNext(); });
    const absl::Status status = write();
    if (!status.ok()) return Fail(status);
    FreeMessage();
    ProcessNext();
  }

  void OnLastMessage() override {
    if (!begun()) {
      return Fail(
          absl::InvalidArgumentError("the Write has no message; the first must carry the spec"));
    }
    if (part_.begun()) return Respond(part_.Finish());
    upload_.CountParts();
    if (upload_.resumable() && upload_.written_bytes() < upload_.size_bytes()) return Interrupt();
    Respond(upload_.Finish());
  }

  void Respond(const absl::StatusOr<TensorRef>& tensor) {
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
    part_.End();
    Finish(status);
  }

  // At most one of them begins: `part_` if the spec has a part.
  TensorUpload upload_;
  PartUpload part_;
  WriteChunk chunk_;  // the decoded message()
};

}  // namespace

CallFactory MakeWriteFactory(BulkContext* context) { return MakeCallFactory<WriteCall>(context); }

}  // namespace tensord::server
