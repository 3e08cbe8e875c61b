// One gRPC call of the command stream. Each connection attempt makes a new one.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tensord/client/internal/credentials.h"
#include "tensord/client/internal/stream_events.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::internal {

// A SessionStream call whose results are StreamEvents. Its first message attaches it to the
// session:
//
//            Attach        kAttachWritten, and the first answer if `reconnects`
//   started ───────▶ attaching ────────────────────────────────────────────────▶ attached
//
// The answer to the message says which commands the server already has: only after it may others be
// sent again.
//
// At most one read and one write are under way at a time. Thread-safe only as far as said below.
class StreamCall {
 public:
  // `reconnects`: an earlier call of the session was attached.
  StreamCall(grpc::GenericStub* stub, const Credentials& credentials, grpc::CompletionQueue* queue,
             bool reconnects)
      : answer_pending_(reconnects) {
    credentials.AddTo(&context_);
    wire_ = stub->PrepareCall(&context_, "/tensord.v1.TensorService/SessionStream", queue);
  }

  void Start() { wire_->StartCall(ToTag(StreamEvent::kCallStarted)); }
  // Thread-safe. The call ends early; its events still come.
  void Cancel() { context_.TryCancel(); }

  // For the thread that has the right to send (send_state.h). Each is one write.
  void Attach(std::string message);
  void Write(std::shared_ptr<const std::string> message);
  void HalfClose() { wire_->WritesDone(ToTag(StreamEvent::kHalfClosed)); }

  // For the polling thread.
  void Read() { wire_->Read(&response_, ToTag(StreamEvent::kMessageRead)); }
  // What the last read has brought, and its size on the wire. False if it isn't a valid message.
  bool TakeResponse(v1::SessionStreamResponse* response, int64_t* bytes);
  // After the last read and write.
  void Finish() { wire_->Finish(&status_, ToTag(StreamEvent::kCallFinished)); }
  // After kCallFinished.
  const grpc::Status& status() const { return status_; }

  bool attach_written() const { return attach_written_; }
  bool attached() const { return attach_written_ && !answer_pending_; }
  // The first answer is still to come, and must before anything else is sent.
  bool answer_pending() const { return answer_pending_; }
  void SetAttachWritten() { attach_written_ = true; }
  // Returns true if this was the answer to the message that attaches.
  bool SetAnswered() { return std::exchange(answer_pending_, false); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> wire_;
  grpc::ByteBuffer response_;
  grpc::Status status_;
  bool attach_written_ = false;
  bool answer_pending_;
};

}  // namespace tensord::internal
