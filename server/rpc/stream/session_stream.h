// The handler of SessionStream: one connection for a session's commands and answers.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <vector>

#include "tensord/common/util/mutex.h"
#include "tensord/server/rpc/parsed_size.h"
#include "tensord/server/rpc/server_call.h"
#include "tensord/server/rpc/service_context.h"
#include "tensord/server/rpc/stream/session_commands.h"
#include "tensord/server/session/session.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::server {

// There is one per call. It reads a message, applies the message's commands, and reads the next
// message. Answers that arrive during a write are sent together in the next write.
//
// The queue's thread applies a message in slices of a fraction of a millisecond, and handles other
// events between them. So other calls on that thread don't wait long. A worker continues messages
// with many slices, and runs single commands that take longer than a slice.
//
// Backpressure: the stream doesn't read while too many commands wait to run, or too many answers
// wait to be sent. So the client blocks, and the server's memory use stays bounded.
class SessionStream final : public ServerCall, public CommandWire {
 public:
  SessionStream(ServiceContext* context, std::unique_ptr<GrpcCall> grpc_call)
      : ServerCall(std::move(grpc_call)),
        context_(context),
        request_charge_(ParsedCharge::AtLimit::kModerate) {}

  void Resume() override { Advance(); }
  void End(const absl::Status& error) override;

 private:
  using ReadyElements = SessionCommands::ReadyElements;

  bool MayWait(size_t bytes) const override;
  void OnAdmitted() override;
  void OnRead(bool ok) override;
  void OnWritten(bool ok) override;
  // Ends the stream with `status` as soon as the write under way has ended.
  void OnRevoked(const absl::Status& status) override;
  // Applies no further commands, sends all answers and `draining`, and ends with UNAVAILABLE once
  // the client has half-closed. It waits for that because, if the server closed the connection
  // while the client still sends, the kernel would discard data that the client hasn't read.
  void OnDrain() override;
  // Ends the stream as OnDrain() does, but doesn't wait for the client's half-close.
  void OnDrainTimeout() override;
  void OnDone() override;
  // After the last event, detaches the stream from its session and ends the use of the session.
  void AfterEvent() override;

  void StartReadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes a worker run a function.
  void PostToWorker(void (SessionStream::*function)());
  // Decodes the message that has been read, and applies it.
  void DecodeMessage();
  // Decodes the message into request_. If it is the first message, attaches the stream.
  absl::Status TryDecode();
  bool ended() const {
    MutexLock lock(&mu_);
    return ended_;
  }
  // ApplyMessage() begins to apply request_, ContinueMessage() continues.
  void ApplyMessage();
  void ContinueMessage();
  SessionCommands::Clock::time_point EndOfSlice() const;
  void OnProgress(absl::StatusOr<SessionCommands::Progress> progress);
  // Continues with the next message. If `status` isn't OK, ends the stream with `status` instead.
  void EndMessage(const absl::Status& status);
  // Returns null before the first message.
  std::shared_ptr<SessionCommands> commands() const {
    MutexLock lock(&mu_);
    return commands_;
  }
  // Attaches the stream to the session that its first message names.
  absl::Status Attach(const v1::SessionStreamRequest& request);

  // Continues reading and writes the next response, where either is possible. If the stream has
  // nothing left to do, ends it.
  void Advance();
  absl::Status EndStatus() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Writes response_ with the elements of ready_, once the response fits into the caller's limit.
  void WriteResponse();
  // Adds the elements of `ready` to response_ and writes response_. If the memory of one of these
  // tensors isn't host-accessible, a worker does this.
  void WriteElements(std::vector<ReadyElements> ready);
  // Sets the stream's final status. The stream then applies no further commands, and finishes once
  // no write is under way. If the final status is already set, does nothing.
  void EndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MaybeFinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  ServiceContext* const context_;
  grpc::ByteBuffer incoming_;           // used by the read under way
  v1::SessionStreamRequest request_;    // the message that is being applied
  ParsedCharge request_charge_;         // of request_
  int64_t message_bytes_ = 0;           // its size
  int slices_ = 0;                      // of request_, so far, on the queue's thread
  bool on_worker_ = false;              // a worker decodes or applies the message
  v1::SessionStreamResponse response_;  // used by the write under way, also while it waits
  SessionUse session_;                  // set by the first message

  mutable Mutex mu_;  // acquired before the mutex of SessionCommands
  std::shared_ptr<SessionCommands> commands_ ABSL_GUARDED_BY(mu_);  // set by the first message
  bool want_read_ ABSL_GUARDED_BY(mu_) = false;  // the next read starts once MayRead()
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool awaits_room_ ABSL_GUARDED_BY(mu_) = false;  // writing_, but response_ doesn't fit yet
  std::vector<ReadyElements> ready_ ABSL_GUARDED_BY(mu_);  // of response_, while awaits_room_
  bool half_closed_ ABSL_GUARDED_BY(mu_) = false;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool draining_sent_ ABSL_GUARDED_BY(mu_) = false;
  bool drain_timed_out_ ABSL_GUARDED_BY(mu_) = false;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool applying_ ABSL_GUARDED_BY(mu_) = false;  // a message was read, and isn't applied yet
  bool ended_ ABSL_GUARDED_BY(mu_) = false;     // outcome_ is set
  bool detached_ ABSL_GUARDED_BY(mu_) = false;
  bool grpc_done_ ABSL_GUARDED_BY(mu_) = false;  // OnDone() has run
  absl::Status outcome_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
