// SessionStream: one connection for a session's commands and answers.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <vector>

#include "tensord/common/mutex.h"
#include "tensord/server/rpc/call_queue.h"
#include "tensord/server/rpc/service.h"
#include "tensord/server/rpc/session_commands.h"
#include "tensord/server/session/session.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::server {

// One per call. Reads a message, has its commands taken in on the queue's thread, reads the next;
// answers gather meanwhile and go out together when the last write is done. Reading pauses while
// too much waits to run or to be sent, so that the client feels it as waiting and the server
// doesn't grow.
//
// Kept alive by what it has begun with gRPC.
class SessionStream final : public CommandWire, public std::enable_shared_from_this<SessionStream> {
 public:
  // Has `queue` wait for a client's stream, and then for the next one.
  static void Await(ServiceContext* context, TensorRpc* rpc, CallQueue* queue);

  // Takes no more in, answers what has been taken in, says so, and ends with UNAVAILABLE once the
  // client has half-closed: were it still sending when the connection is closed, the system would
  // throw away what the client hasn't read yet. Thread-safe.
  void Drain();
  // The same without waiting for the client's half-close any more. After Drain().
  void HangUp();

  void GoOn() override { MaybeWrite(); }
  void Supersede() override;

 private:
  friend class CallEvent<SessionStream>;
  using Event = CallEvent<SessionStream>;
  using ReadyElements = SessionCommands::ReadyElements;

  SessionStream(ServiceContext* context, TensorRpc* rpc, CallQueue* queue);

  void OnCalled(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool /*ok*/) {}
  void OnDone(bool ok);
  void StartReadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartWriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // After the last event: the session may go, or have another stream.
  void AfterEvent();

  // Ends with this as soon as what is being written has been: the gate lets the caller in no more.
  void Refuse(const absl::Status& status);
  // Of the first message.
  absl::Status Attach(const v1::SessionStreamRequest& request);

  void MaybeWrite();
  grpc::Status EndStatus() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteFetches(std::vector<ReadyElements> fetches);
  void FinishLocked(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BeginFinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  ServiceContext* const context_;
  TensorRpc* const rpc_;
  CallQueue* const queue_;
  grpc::ServerContext call_;
  grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer> wire_;
  Event called_{&SessionStream::OnCalled};
  Event read_{&SessionStream::OnRead};
  Event written_{&SessionStream::OnWritten};
  Event finish_{&SessionStream::OnFinished};
  Event done_{&SessionStream::OnDone};
  Admission admission_;
  grpc::ByteBuffer incoming_;           // owned by the read under way
  v1::SessionStreamRequest request_;    // owned by who reads
  v1::SessionStreamResponse response_;  // owned by the write under way
  SessionUse session_;                  // set by the first message

  Mutex mu_;                                                        // before the commands' own
  std::shared_ptr<SessionCommands> commands_ ABSL_GUARDED_BY(mu_);  // set by the first message
  bool want_read_ ABSL_GUARDED_BY(mu_) = false;  // a message is done and the next not asked for
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool half_closed_ ABSL_GUARDED_BY(mu_) = false;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool told_draining_ ABSL_GUARDED_BY(mu_) = false;
  bool hanging_up_ ABSL_GUARDED_BY(mu_) = false;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;  // the outcome is known
  bool finish_begun_ ABSL_GUARDED_BY(mu_) = false;
  bool let_go_ ABSL_GUARDED_BY(mu_) = false;
  bool over_ ABSL_GUARDED_BY(mu_) = false;  // gRPC is done with the call
  grpc::Status outcome_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
