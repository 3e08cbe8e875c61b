#include "tensord/client/internal/bulk.h"

#include <grpcpp/completion_queue.h>

#include <algorithm>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/internal/bulk_codec.h"

namespace tensord::internal {
namespace {

// One call, driven step by step from one thread: each Begin… is followed by one Wait.
class BulkCall {
 public:
  BulkCall(grpc::GenericStub* stub, grpc::ClientContext* context, const std::string& method)
      : call_(stub->PrepareCall(context, method, &queue_)) {
    call_->StartCall(this);
  }
  ~BulkCall() {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  // False where the call is over.
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }
  void BeginWrite(const grpc::ByteBuffer& message) { call_->Write(message, this); }
  void BeginWritesDone() { call_->WritesDone(this); }
  void BeginRead(grpc::ByteBuffer* message) { call_->Read(message, this); }
  grpc::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, this);
    Wait();
    return status;
  }

 private:
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

// False where the call is over before everything has been sent.
bool SendChunks(BulkCall* call, const v1::WriteSpec& spec, absl::Span<const uint8_t> data,
                const Progress& progress) {
  v1::WriteRequest first;
  *first.mutable_spec() = spec;
  grpc::ByteBuffer message = EncodeMessage(first);
  const auto total_bytes = static_cast<int64_t>(data.size());
  int64_t sent_bytes = 0;  // once `message` is
  if (!call->Wait()) return false;
  while (true) {
    call->BeginWrite(message);
    const int64_t size = std::min(kChunkBytes, total_bytes - sent_bytes);
    // The next chunk is copied while this one is on its way.
    if (size > 0) message = EncodeChunk(sent_bytes, data.subspan(sent_bytes, size));
    if (!call->Wait()) return false;
    if (progress && sent_bytes > 0) progress(sent_bytes, total_bytes);
    if (size == 0) return true;
    sent_bytes += size;
  }
}

grpc::Status Internal(absl::string_view what) {
  return grpc::Status(grpc::StatusCode::INTERNAL, std::string(what));
}

}  // namespace

grpc::Status Upload(grpc::GenericStub* stub, grpc::ClientContext* context,
                    const v1::WriteSpec& spec, absl::Span<const uint8_t> data,
                    const Progress& progress) {
  BulkCall call(stub, context, "/tensord.v1.TensorService/Write");
  if (SendChunks(&call, spec, data, progress)) {
    call.BeginWritesDone();
    call.Wait();
    grpc::ByteBuffer tensor;
    call.BeginRead(&tensor);
    call.Wait();
  }
  return call.Finish();
}

grpc::Status Download(grpc::GenericStub* stub, grpc::ClientContext* context,
                      const v1::ReadRequest& request, absl::Span<uint8_t> out,
                      const Progress& progress) {
  BulkCall call(stub, context, "/tensord.v1.TensorService/Read");
  if (!call.Wait()) return call.Finish();
  call.BeginWrite(EncodeMessage(request));
  if (!call.Wait()) return call.Finish();
  call.BeginWritesDone();
  if (!call.Wait()) return call.Finish();

  absl::Status decoded;
  v1::TensorSpec spec;
  int64_t filled = 0;
  grpc::ByteBuffer message;
  grpc::ByteBuffer next;
  call.BeginRead(&next);
  while (call.Wait()) {
    message.Swap(&next);
    call.BeginRead(&next);  // comes in while this one is copied
    if (!decoded.ok()) continue;
    decoded = DecodeChunk(&message, out, &filled, &spec);
    if (!decoded.ok()) context->TryCancel();
    if (decoded.ok() && progress) progress(filled, static_cast<int64_t>(out.size()));
  }
  const grpc::Status status = call.Finish();
  if (!decoded.ok()) return Internal(std::string(decoded.message()));
  if (!status.ok()) return status;
  if (filled != static_cast<int64_t>(out.size())) {
    return Internal(absl::StrCat("the server sent ", filled, " of ", out.size(), " bytes"));
  }
  return status;
}

}  // namespace tensord::internal
