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
// The answer says which commands the server already has. Commands may be sent again only after it.
//
// At most one read and one write are under way at a time. Only Cancel is thread-safe.
class StreamCall {
 public:
  // `reconnects` says whether an earlier call of the session was attached.
  StreamCall(grpc::GenericStub* stub, const Credentials& credentials, grpc::CompletionQueue* queue,
             bool reconnects)
      : awaits_answer_(reconnects) {
    credentials.AddTo(&context_);
    wire_ = stub->PrepareCall(&context_, "/tensord.v1.TensorService/SessionStream", queue);
  }

  void Start() { wire_->StartCall(ToTag(StreamEvent::kCallStarted)); }
  // Thread-safe. Ends the call early. Its events still come.
  void Cancel() { context_.TryCancel(); }

  // Only the thread that has the right to send (send_state.h) may call these functions. Each call
  // is one write.
  void Attach(std::string message);
  void Write(std::shared_ptr<const std::string> message);
  void HalfClose() { wire_->WritesDone(ToTag(StreamEvent::kHalfClosed)); }

  // Only the polling thread may call this function and the following ones.
  void Read() { wire_->Read(&response_, ToTag(StreamEvent::kMessageRead)); }
  // Decodes the message of the last read, and sets `bytes` to its size on the wire. Returns false
  // if it is malformed.
  bool TakeResponse(v1::SessionStreamResponse* response, int64_t* bytes);
  // Call it after the last read and write have ended.
  void Finish() { wire_->Finish(&status_, ToTag(StreamEvent::kCallFinished)); }
  // Returns the call's status. It is valid after kCallFinished.
  const grpc::Status& status() const { return status_; }

  bool attach_written() const { return attach_written_; }
  // Returns whether messages of commands may be sent: the message that attaches has been written,
  // and its answer has come if one was awaited.
  bool attached() const { return attach_written_ && !awaits_answer_; }
  void SetAttachWritten() { attach_written_ = true; }
  // Records that an answer has come. Returns true if it was the answer to the message that
  // attaches.
  bool SetAnswered() { return std::exchange(awaits_answer_, false); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> wire_;
  grpc::ByteBuffer response_;
  grpc::Status status_;
  bool attach_written_ = false;
  bool awaits_answer_;
};

}  // namespace tensord::internal
