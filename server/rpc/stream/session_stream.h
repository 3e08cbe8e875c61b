// SessionStream: one connection for a session's commands and answers.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <vector>

#include "tensord/common/util/mutex.h"
#include "tensord/server/rpc/server_call.h"
#include "tensord/server/rpc/service_context.h"
#include "tensord/server/rpc/stream/session_commands.h"
#include "tensord/server/session/session.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::server {

// One per call. Reads a message, has its commands taken in on the queue's thread, reads the next;
// answers gather meanwhile and go out together when the last write is done. Reading pauses while
// too much waits to run or to be sent, so that the client feels it as waiting and the server
// doesn't grow.
//
class SessionStream final : public ServerCall, public CommandWire {
 public:
  SessionStream(ServiceContext* context, std::unique_ptr<GrpcCall> grpc_call)
      : ServerCall(std::move(grpc_call)), context_(context) {}

  void Resume() override { MaybeWrite(); }
  void Supersede() override;

 private:
  using ReadyElements = SessionCommands::ReadyElements;

  void OnAdmitted() override;
  void OnRead(bool ok) override;
  void OnWritten(bool ok) override;
  // Ends as soon as what is being written has been.
  void OnRevoked(const absl::Status& status) override;
  // Takes no more in, answers what has been taken in, says so, and ends with UNAVAILABLE once the
  // client has half-closed: were it still sending when the connection is closed, the system would
  // throw away what the client hasn't read yet.
  void OnDrain() override;
  // The same without waiting for the client's half-close any more.
  void OnHangUp() override;
  void OnDone() override;
  // After the last event: the session may go, or have another stream.
  void AfterEvent() override;

  void StartReadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of the first message.
  absl::Status Attach(const v1::SessionStreamRequest& request);

  void MaybeWrite();
  absl::Status EndStatus() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteFetches(std::vector<ReadyElements> fetches);
  // Decides how the stream ends. It takes nothing more in, and finishes once nothing is being
  // written. If that has been decided before, does nothing.
  void EndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MaybeFinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  ServiceContext* const context_;
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
  bool ended_ ABSL_GUARDED_BY(mu_) = false;  // the outcome is known
  bool detached_ ABSL_GUARDED_BY(mu_) = false;
  bool over_ ABSL_GUARDED_BY(mu_) = false;  // gRPC is done with the call
  absl::Status outcome_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
