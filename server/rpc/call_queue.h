// Calls on completion queues with threads of their own: a payload comes and goes as the slices of
// gRPC's own buffers, and what a queue serves never waits behind what another does.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tensord/common/handover.h"
#include "tensord/common/mutex.h"
#include "tensord/server/rpc/gate.h"

namespace tensord::server {

class CallQueue;

// What a queue's tags are.
class QueueEvent {
 public:
  // On the queue's thread: what was begun with this tag has ended.
  virtual void Happened(bool ok) = 0;

 protected:
  ~QueueEvent() = default;
};

// Something begun with gRPC for an object, which it keeps alive until it has ended: then `handler`
// runs on the queue's thread, and AfterEvent() after it. One operation at a time.
template <typename Object>
class CallEvent final : public QueueEvent {
 public:
  using Handler = void (Object::*)(bool ok);
  explicit CallEvent(Handler handler) : handler_(handler) {}

  // The tag for an operation that begins now.
  void* Begin(std::shared_ptr<Object> object) {
    object_ = std::move(object);
    HandOver(static_cast<QueueEvent*>(this));
    return static_cast<QueueEvent*>(this);
  }

  void Happened(bool ok) override {
    const std::shared_ptr<Object> object = std::move(object_);
    ((*object).*handler_)(ok);
    object->AfterEvent();
  }

 private:
  const Handler handler_;
  std::shared_ptr<Object> object_;
};

// A call driven by the thread of one queue, on which all but Wake() runs. Made before its client
// comes; deletes itself when the call has ended and nothing that was begun is outstanding.
class QueuedCall {
 public:
  // What may be outstanding, each at most once at a time.
  enum Step { kCalled, kRead, kWritten, kWoken, kDue, kFinished, kRevoked, kDone, kNumSteps };

  explicit QueuedCall(CallQueue* queue);
  virtual ~QueuedCall() = default;
  QueuedCall(const QueuedCall&) = delete;
  QueuedCall& operator=(const QueuedCall&) = delete;

 protected:
  // What was begun as `step` has ended. First comes kCalled, once the gate has let the caller in,
  // and then kDone once, when the call has ended for gRPC, by us or by the client.
  virtual void On(Step step, bool ok) = 0;
  // The gate lets the caller in no more, or never did: the call is to end with this as soon as it
  // can. Comes at most once.
  virtual void Refuse(const absl::Status& status) = 0;
  // The client has come; another of the same kind is to wait for the next one. On the thread of the
  // queue's door.
  virtual void AwaitNext() = 0;

  // The tag for an operation that begins now.
  void* Begin(Step step);
  // What was begun won't end by itself: no tag of it will come.
  void Abandon(Step step);
  // Ends kWoken, begun before; from any thread.
  void Wake();

  CallQueue* queue() const { return queue_; }
  grpc::ServerContext& context() { return context_; }
  // Who calls.
  const PrincipalRef& principal() const { return admission_.principal(); }
  // Reports that the call uses a session. The server trusts its connection from now on.
  void SessionUsed() { admission_.SessionUsed(); }
  // Reports that the call's first or only request has been received. `bytes`: its encoded size.
  void RequestReceived(size_t bytes) { admission_.RequestReceived(bytes); }

 private:
  friend class CallQueue;
  struct Tag final : QueueEvent {
    void Happened(bool ok) override;
    QueuedCall* call;
    Step step;
  };

  // On the door's thread: the client has come, or none ever will.
  void Arrive(bool ok);
  // Runs On(), and deletes the call where that was the last.
  void Proceed(Step step, bool ok);
  void Enter();
  void Done();

  CallQueue* const queue_;
  grpc::ServerContext context_;
  grpc::Alarm alarm_;
  Tag tags_[kNumSteps];
  int outstanding_ = 0;
  bool arrived_ = false;     // the client has come, and the door has said so
  bool called_ = false;      // On(kCalled) has run
  bool done_early_ = false;  // gRPC was done with the call before that
  Admission admission_;
  absl::Status revoked_;  // for kRevoked
  grpc::Alarm revoked_alarm_;
};

// A completion queue and its thread. gRPC has every thread that waits at a queue take part in
// watching all connections, at the price of a wake-up or two for each message: so there should be
// as few of them as keep up with the work.
class CallQueue {
 public:
  // Before the server is built. Whoever calls is let in by `gate`, which outlives this. `spin`: how
  // long the thread looks for what comes next before it sleeps.
  CallQueue(grpc::ServerBuilder* builder, Gate* gate,
            std::chrono::microseconds spin = std::chrono::microseconds(0))
      : gate_(gate), spin_(spin), queue_(builder->AddCompletionQueue()) {}
  // A queue for calls that are seldom: clients come in through `door`, which outlives this, and
  // while there is none the thread doesn't watch anything.
  CallQueue(grpc::ServerBuilder* builder, CallQueue* door)
      : gate_(door->gate()),
        spin_(0),
        door_(door),
        queue_(builder->AddCompletionQueue(/*is_frequently_polled=*/false)) {}
  // The server must have been shut down.
  ~CallQueue();

  // Once the server is built and the calls to come have been asked for.
  void Start();

  // Waits until everything that has happened so far has been handled. Not on the queue's thread.
  void Settle();

  // Counts calls whose clients have come, until gRPC is done with them. Thread-safe.
  void CallBegan();
  void CallEnded();
  bool AnyCalls() const;
  // Waits, until the deadline, for all of them to end.
  void AwaitNoCalls(std::chrono::steady_clock::time_point deadline);

  Gate* gate() const { return gate_; }
  grpc::ServerCompletionQueue* get() const { return queue_.get(); }
  // The queue that clients come in at.
  grpc::ServerCompletionQueue* arrivals() const { return door_ ? door_->get() : get(); }

 private:
  void Run();
  // Where there is a door: returns once there is a call, or the end has come.
  void AwaitCall();
  bool Next(void** tag, bool* ok);

  Gate* const gate_;
  const std::chrono::microseconds spin_;
  CallQueue* const door_ = nullptr;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::thread thread_;

  mutable Mutex mu_;
  CondVar changed_;
  int calls_ ABSL_GUARDED_BY(mu_) = 0;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tensord::server
