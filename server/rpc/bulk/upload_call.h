// The base of the handlers of Write and SharedMemory, which process messages and fill tensors.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "tensord/server/rpc/bulk/bulk_call.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::server {

// Processes one message while gRPC receives the next. So a call holds at most two messages. They
// count as requests that have arrived in part until they have been processed.
class UploadCall : public BulkCall {
 public:
  UploadCall(BulkContext* bulk, std::unique_ptr<GrpcCall> grpc_call)
      : BulkCall(bulk, std::move(grpc_call)) {}

 protected:
  // Processes message().
  virtual void OnMessage() = 0;
  // Returns whether the next message may be processed now. When that changes to true, the derived
  // class calls ProcessNext().
  virtual bool MayProcess() const { return true; }
  // Runs after the last message: the client has half-closed the call, or the call was cancelled.
  virtual void OnLastMessage() = 0;

  // Processes the next message, if it has arrived and the call isn't busy with another one. A
  // derived class calls it after it has finished a message.
  void ProcessNext() {
    if (finished() || busy()) return;
    FreeMessage();
    if (!has_incoming_ || !MayProcess()) return;
    has_incoming_ = false;
    if (all_read_) return OnLastMessage();
    message_.Swap(&incoming_);
    message_bytes_ = static_cast<int64_t>(message_.Length());
    StartRead(&incoming_);
    OnMessage();
  }

  // Returns the message that is being processed.
  grpc::ByteBuffer* message() { return &message_; }
  // Frees the message that has been processed, if any.
  void FreeMessage() {
    message_.Clear();
    if (message_bytes_ != 0) HoldMessage(-std::exchange(message_bytes_, 0));
  }

  // Begins the upload, a TensorUpload or a PartUpload, after the first spec.after_command()
  // commands of the session's stream have taken effect. Then runs `then` with the status. Doesn't
  // block.
  template <typename Upload, typename Then>
  void BeginUpload(Upload* upload, const v1::WriteSpec& spec, Then then) {
    Wait(
        [&](auto on_received) {
          const absl::Status waiting = upload->Await(principal(), spec, on_received);
          if (!waiting.ok()) return on_received(waiting);
        },
        [this, upload, spec, then](absl::Status status) {
          if (has_incoming_) SetBlocked(false);
          if (status.ok()) status = upload->Begin(spec, [this] { context().TryCancel(); });
          then(status);
        });
  }

 private:
  void OnAdmitted() final { StartRead(&incoming_); }
  void OnRead(bool ok) final {
    has_incoming_ = true;
    all_read_ = !ok;
    if (ok) HoldMessage(static_cast<int64_t>(incoming_.Length()));
    if (ok && (waiting() || !MayProcess())) SetBlocked(true);
    ProcessNext();
  }

  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer message_;
  int64_t message_bytes_ = 0;  // of message_, until FreeMessage()
  bool has_incoming_ = false;
  bool all_read_ = false;
};

}  // namespace tensord::server
