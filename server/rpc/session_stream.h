// SessionStream: commands in order, answers when there is something to say.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <vector>

#include "tensord/common/mutex.h"
#include "tensord/server/engine/packed_ops.h"
#include "tensord/server/rpc/call_queue.h"
#include "tensord/server/rpc/service.h"
#include "tensord/server/session/session.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::server {

// One per call. Reads a batch, takes its commands in on the queue's thread, reads the next; answers
// gather meanwhile and go out together when the last write is done. Reading pauses while too much
// waits to run or to be sent, so that the client feels it as waiting and the server doesn't grow.
//
// Kept alive by what it has begun with gRPC, and by each call back that is still to come.
class SessionStream final : public std::enable_shared_from_this<SessionStream> {
 public:
  // Has `queue` wait for a client's stream, and then for the next one.
  static void Await(ServiceContext* context, TensorRpc* rpc, CallQueue* queue);

  // Takes no more in, answers what has been taken in, ends with UNAVAILABLE. Thread-safe.
  void Drain();

 private:
  // Ends with this as soon as what is being written has been: the gate lets the caller in no more.
  void Refuse(const absl::Status& status);

  // A Fetch whose tensor is ready, or has failed.
  struct ReadyFetch {
    uint64_t fetch_id;
    TensorRef tensor;
    absl::Status status;
  };

  friend class CallEvent<SessionStream>;
  using Event = CallEvent<SessionStream>;

  SessionStream(ServiceContext* context, TensorRpc* rpc, CallQueue* queue);

  void OnCalled(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);
  void OnDone(bool ok);
  void StartReadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartWriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // After the last event: the session may go, or have another stream.
  void AfterEvent();

  absl::Status Attach(const v1::SessionStreamRequest& request);
  // An error ends the stream.
  absl::Status TakeIn(const v1::SessionStreamRequest& request, int64_t message_bytes);
  absl::Status TakeCommand(const v1::Command& command);
  absl::Status TakeDefinition(const v1::Definition& definition);
  absl::Status TakeBatch(const v1::Batch& batch);
  absl::Status TakeProgram(const v1::Program& program);
  void TakeRun(const v1::ProgramRun& run, uint64_t number);
  void TakeSingle(const v1::Command& command, uint64_t number);
  absl::Status TakeOp(const v1::Op& op, uint64_t number);
  absl::StatusOr<TensorRef> TakePromise(const v1::Promise& promise);
  void TakeFetch(const v1::Fetch& fetch);
  void TakeBarrier(const v1::Barrier& barrier);

  // The op or promise of `handle` was refused: the error sticks to the handle.
  void Refuse(Handle handle, uint64_t number, const absl::Status& error);
  // Tells the client when a promised tensor fails.
  void Watch(const TensorRef& tensor, uint64_t number);

  void ReadOn();
  bool MustAckLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MayReadLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MaybeWrite();
  grpc::Status EndStatus() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteFetches(std::vector<ReadyFetch> fetches);
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
  bool attached_ = false;               // written by the thread that reads, with mu_ held
  std::unique_ptr<PackedOps> packed_;   // likewise, as is what follows
  uint64_t taken_ = 0;                  // commands that have taken effect
  int64_t since_marker_ = 0;  // those that were posted since the lanes were last seen to catch up

  Mutex mu_;
  std::deque<v1::HandleError> errors_ ABSL_GUARDED_BY(mu_);
  std::deque<ReadyFetch> fetches_ ABSL_GUARDED_BY(mu_);
  std::deque<uint64_t> barriers_ ABSL_GUARDED_BY(mu_);
  uint64_t acked_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t received_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t unacked_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint32_t ack_commands_ ABSL_GUARDED_BY(mu_) = 0;  // as the client asked for them
  uint32_t ack_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t unanswered_ ABSL_GUARDED_BY(mu_) = 0;  // fetches and barriers taken in and not answered
  bool catching_up_ ABSL_GUARDED_BY(mu_) = false;
  bool want_read_ ABSL_GUARDED_BY(mu_) = false;  // a batch is done and the next is not asked for
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool half_closed_ ABSL_GUARDED_BY(mu_) = false;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;  // the outcome is known
  bool finish_begun_ ABSL_GUARDED_BY(mu_) = false;
  bool let_go_ ABSL_GUARDED_BY(mu_) = false;
  bool over_ ABSL_GUARDED_BY(mu_) = false;  // gRPC is done with the call
  grpc::Status outcome_ ABSL_GUARDED_BY(mu_);
  bool detached_ = false;  // the session may have another stream
};

}  // namespace tensord::server
