// A call of Fetch to another server, the source.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <deque>
#include <memory>
#include <string>

#include "tensord/server/rpc/call_queue.h"
#include "tensord/server/rpc/peer/peers.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::server {

// Only the thread of the peers' queue uses it, except for Cancel(). Its operations on the queue
// keep it alive.
class SourceCall final : public std::enable_shared_from_this<SourceCall> {
 public:
  using Clock = std::chrono::steady_clock;

  // The fetch that makes the call. Its functions run on the thread of the peers' queue.
  class User {
   public:
    // A message has been read. The call reads no further one until ReadNext().
    virtual void OnMessageRead() = 0;
    // A message of Send() begins to be sent.
    virtual void OnSending() = 0;
    // The call and all its operations have ended.
    virtual void OnCallEnded() = 0;

   protected:
    ~User() = default;
  };

  // The call will use the peers' connection of this number to the source. `peers` outlives the
  // call. Each message is read into `incoming`, which exists until the call has ended.
  SourceCall(Peers* peers, const std::string& address, int connection, grpc::ByteBuffer* incoming);

  // Starts the call and sends `request`, then reads the first message. If `sends_more` is false,
  // half-closes after the request, and Send() must not be called. If the call hasn't ended by
  // `deadline`, and SetAnswered() hasn't been called, cancels the call. Keeps `user` alive until
  // OnCallEnded(). Call it once.
  void Start(std::shared_ptr<User> user, const v1::FetchRequest& request, bool sends_more,
             Clock::time_point deadline);

  // Reads the next message. Call it once after each OnMessageRead().
  void ReadNext();
  // Queues a message to the source. Messages that the source can't get any more are dropped.
  void Send(const v1::FetchRequest& message);
  // Cancels the call. Thread-safe.
  void Cancel() { context_.TryCancel(); }

  // Records that the source has answered. The deadline no longer applies.
  void SetAnswered();
  bool answered() const { return answered_; }

  // Returns whether the call has finished: status() is known, and no further message will be read.
  bool finished() const { return finished_; }
  // Returns whether the call and all its operations have ended.
  bool ended() const { return finished_ && outstanding_ == 0; }

  // The following two functions may be called once the call has finished.
  const grpc::Status& status() const { return status_; }
  bool has_trailing_metadata(const char* key) const {
    return context_.GetServerTrailingMetadata().count(key) > 0;
  }

 private:
  friend class CallEvent<SourceCall>;
  using Event = CallEvent<SourceCall>;

  void OnStarted(bool ok);
  void OnRequestSent(bool ok);
  void OnRead(bool ok);
  void OnMessageSent(bool ok);
  void OnDeadline(bool ok);
  void OnFinished(bool ok);
  void AfterEvent() {}
  const void* event_owner() const { return nullptr; }

  // Returns the tag for an operation that begins now, and counts the operation.
  void* Begin(Event* event);
  void SendNext();
  void Finish();
  // If the call and all its operations have ended, calls User::OnCallEnded().
  void ReportEnd();

  Peers* const peers_;
  grpc::ByteBuffer* const incoming_;
  std::shared_ptr<User> user_;  // until OnCallEnded()

  Event started_{&SourceCall::OnStarted};
  Event request_sent_{&SourceCall::OnRequestSent};
  Event read_{&SourceCall::OnRead};
  Event message_sent_{&SourceCall::OnMessageSent};
  Event deadline_{&SourceCall::OnDeadline};
  Event finish_{&SourceCall::OnFinished};
  int outstanding_ = 0;  // operations that have begun and not ended

  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;  // destroyed before context_
  grpc::Alarm deadline_alarm_;
  grpc::Status status_;
  grpc::ByteBuffer request_;
  bool sends_more_ = false;
  std::deque<grpc::ByteBuffer> outgoing_;
  bool sending_ = false;
  bool answered_ = false;
  bool finished_ = false;
};

}  // namespace tensord::server
