// The base class of the handlers of calls.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/rpc/auth/authenticator.h"
#include "tensord/server/rpc/call_group.h"
#include "tensord/server/rpc/call_queue.h"
#include "tensord/server/rpc/method_counters.h"
#include "tensord/server/session/session.h"
#include "tensord/server/session/session_table.h"

namespace tensord::server {

class ServerCall;

// The gRPC objects of one call. They must exist before the client makes the call.
class GrpcCall {
 public:
  explicit GrpcCall(CallQueue* queue);
  GrpcCall(const GrpcCall&) = delete;
  GrpcCall& operator=(const GrpcCall&) = delete;

  CallQueue* queue() const { return queue_; }
  grpc::GenericServerContext& context() { return context_; }
  grpc::GenericServerAsyncReaderWriter& stream() { return stream_; }

  // Records when the call arrived, and counts it in its queue until this object is destroyed.
  void Arrived();
  // Sets the counters of the call's method, which outlive the call. Call it before Start().
  void SetCounters(MethodCounters* counters) { counters_ = counters; }

 private:
  friend class ServerCall;

  struct QueueCount {
    ~QueueCount();
    CallQueue* queue = nullptr;
  };

  // The event that gRPC is done with the call. If calls arrive at another queue, the event may
  // happen before the call has a handler.
  class DoneEvent final : public QueueEvent {
   public:
    void OnCompleted(bool ok) override;
    const void* owner() const override;
    bool completed = false;
    std::shared_ptr<ServerCall> call;  // kept alive until the event happens
  };

  QueueCount count_;  // first: it is destroyed last
  CallQueue* const queue_;
  std::chrono::steady_clock::time_point arrived_at_;
  MethodCounters* counters_ = nullptr;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_;
  DoneEvent done_;
};

// One call of a client, from its arrival to its end. This class calls the functions below; a
// derived class does the method's own work in them:
//
//   arrival      CallDispatcher makes the handler, and Start() authenticates the call.
//   OnAdmitted   The authenticator has admitted the caller. (OnRefused: it has not.)
//   OnRead, OnWritten   The operation that StartRead() or StartWrite() began has ended.
//   OnRevoked    The caller's credentials were revoked or have expired, a message is too large, or
//                the unfinished requests of the caller take too much memory.
//   OnDrain, OnDrainTimeout   The server shuts down, and the call has joined a CallGroup.
//   OnDone       gRPC is done with the call, because the call has finished, or because the client
//                has cancelled it, its connection broke, or its deadline passed. Happens once.
//
// All of these run on the thread of the call's queue. They may also come after Finish(). AfterEvent
// runs after each of them.
//
// The call exists until OnDone. After that, only operations and posted tasks keep it alive, until
// they have ended. A callback that waits for something on the call's behalf must hold a weak_ptr.
class ServerCall : public std::enable_shared_from_this<ServerCall> {
 public:
  virtual ~ServerCall();
  ServerCall(const ServerCall&) = delete;
  ServerCall& operator=(const ServerCall&) = delete;

  // Returns the caller. If the authenticator hasn't authenticated it, returns null.
  const PrincipalRef& principal() const { return admission_.principal(); }

  // Returns whether the caller may list and close the sessions of all principals.
  bool is_admin() const { return admission_.is_admin(); }

  // Returns whether Finish() or FinishWith() has been called. Thread-safe.
  bool finished() const;

 protected:
  explicit ServerCall(std::unique_ptr<GrpcCall> grpc_call);

  // Returns whether a message of this size may wait for a worker. It then counts as unread until
  // ReleaseMessage(), so that the messages that wait are limited together with those that have
  // arrived in part.
  virtual bool MayWait(size_t /*bytes*/) const { return false; }

  virtual void OnAdmitted() = 0;
  virtual void OnRefused(const absl::Status& status) { Finish(status); }
  virtual void OnRead(bool ok) = 0;
  virtual void OnWritten(bool /*ok*/) {}
  virtual void OnRevoked(const absl::Status& status) { Finish(status); }
  virtual void OnDrain() {}
  virtual void OnDrainTimeout() {}
  // If the call hasn't finished, it must finish here, or when its unfinished work has ended. gRPC
  // requires that even if the client has disconnected.
  virtual void OnDone() { Finish(ClientDisconnected()); }
  virtual void AfterEvent() {}

  // Reports that a message for which MayWait() was true no longer waits for a worker. Thread-safe.
  void ReleaseMessage();

  // StartRead() begins a read, StartWrite() a write: at most one of each at a time, and none after
  // OnDone. The `message` of StartRead() must be valid until OnRead.
  void StartRead(grpc::ByteBuffer* message);
  void StartWrite(const grpc::ByteBuffer& message);

  // Sends initial metadata before the first message. OnWritten follows. If the call has finished,
  // does nothing. Don't call it while a write is under way. Thread-safe; the call must be alive.
  void SendInitialMetadata(const std::string& key, const std::string& value);

  // Finish() ends the call with `status`; FinishWith() with a last message and OK. If the call has
  // finished, they do nothing. Thread-safe; the call must be alive.
  void Finish(const absl::Status& status);
  void FinishWith(const grpc::ByteBuffer& message);

  // Runs `build` when the unsent responses of the caller, and of all callers, leave room for
  // `bytes` bytes: at once, or later on any thread. If the call has finished by then, doesn't run
  // it. `build` builds a message of about `bytes` bytes. They count until ReturnResponse(), or
  // until the call is destroyed. Messages of at most kMaxUncountedResponseBytes never wait and
  // don't count. Call it again only after ReturnResponse(). Thread-safe; the call must be alive.
  static constexpr int64_t kMaxUncountedResponseBytes = 4 << 10;
  void WhenResponseFits(int64_t bytes, std::function<void()> build);
  void ReturnResponse();
  // Returns how many bytes of the caller's responses count for this call.
  int64_t response_bytes() const { return response_bytes_; }

  // Adds the call to `group` until the call is destroyed. If the group drains already, returns
  // false, and OnDrain won't come. Call it at most once.
  bool Join(CallGroup* group);

  // Runs `task`, then AfterEvent(), on the thread of the call's queue. If `call` is null, does
  // nothing. The task holds the reference, so this function never destroys the call on the thread
  // that calls it. Thread-safe.
  template <typename Task>
  static void Post(std::shared_ptr<ServerCall> call, Task task) {
    if (call == nullptr) return;
    CallQueue* const queue = call->queue();
    const void* const owner = call->event_owner();
    queue->Post(
        [call = std::move(call), task = std::move(task)]() mutable {
          task();
          call->AfterEvent();
        },
        owner);
  }

  // Both count bytes that the call has transferred outside its messages, such as in shared memory.
  void CountReceived(int64_t bytes);
  void CountSent(int64_t bytes);

  // After this, a cancellation of the call doesn't count against its connection. Thread-safe.
  void TolerateCancellation() { counts_cancellation_ = false; }
  // Reports that a refused call is served, because its request is public. The call then doesn't
  // count as refused.
  void ServeAsPublic() { admission_.ServedAsPublic(); }
  // Reports that the client's only or last message has been received.
  void RequestComplete() { admission_.RequestComplete(); }
  // Reports that the call holds a message of `bytes` bytes that it hasn't processed yet. If `bytes`
  // is negative, the call no longer holds it. Such messages count as requests that have arrived in
  // part.
  void HoldMessage(int64_t bytes) { admission_.HoldMessage(bytes); }
  // Sets whether the call is blocked: it holds a message that it can't process yet, because it
  // waits for a command, for a device, or for the client to read.
  void SetBlocked(bool blocked) { blocked ? admission_.SetBlocked() : admission_.SetAtWork(); }

  CallQueue* queue() const { return grpc_call_->queue(); }
  grpc::GenericServerContext& context() { return grpc_call_->context(); }
  // Returns whether gRPC is done with the call. Call it on the queue's thread.
  bool done() const { return done_; }
  // Returns whether the call was cancelled, or its connection broke, or its deadline passed. Call
  // it from OnDone on.
  bool cancelled() const { return grpc_call_->context().IsCancelled(); }

  // Returns QueueEvent::owner() of the call's events.
  const void* event_owner() const { return principal().get(); }

  static absl::Status ClientDisconnected() { return absl::CancelledError("the client has gone"); }

 private:
  friend class CallDispatcher;
  friend class CallEvent<ServerCall>;
  friend class CallGroup;
  friend class GrpcCall::DoneEvent;

  // Begins the call after it has arrived. Call it on the queue's thread.
  void Start();
  void HandleRead(bool ok);
  void HandleFinished(bool /*ok*/) {}
  void HandleDone();
  void PostDrain(void (ServerCall::*event)());
  // Marks the call as finished and counts its end with `code`. If the call is finished already,
  // returns false.
  bool BeginFinish(grpc::StatusCode code) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::unique_ptr<GrpcCall> grpc_call_;
  Admission admission_;
  CallGroup* group_ = nullptr;
  CallEvent<ServerCall> read_{&ServerCall::HandleRead};
  CallEvent<ServerCall> written_{&ServerCall::OnWritten};
  CallEvent<ServerCall> finish_{&ServerCall::HandleFinished};
  grpc::ByteBuffer* incoming_ = nullptr;  // the message of the read that has begun
  std::atomic<int64_t> response_bytes_ = 0;
  std::atomic<bool> counts_cancellation_ = true;
  size_t waiting_bytes_ = 0;  // of a message that hasn't been released
  bool half_closed_ = false;  // a read failed before the call had finished or was done
  bool done_ = false;

  mutable Mutex mu_;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tensord::server
