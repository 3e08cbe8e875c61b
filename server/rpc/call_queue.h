// Completion queues of gRPC, each with its own thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "tensord/common/util/mutex.h"
#include "tensord/common/util/tsan_annotations.h"
#include "tensord/server/rpc/auth/authenticator.h"

namespace tensord::server {

// The tag of an operation on a queue.
class QueueEvent {
 public:
  // Runs on the queue's thread when the operation has ended. `ok` is the value that
  // CompletionQueue::Next() has set.
  virtual void OnCompleted(bool ok) = 0;

 protected:
  ~QueueEvent() = default;
};

// The tag of an operation of an object. Keeps the object alive until the operation has ended. Then
// runs `handler` and the object's AfterEvent() on the queue's thread. Tags one operation at a time.
template <typename Object>
class CallEvent final : public QueueEvent {
 public:
  using Handler = void (Object::*)(bool ok);
  explicit CallEvent(Handler handler) : handler_(handler) {}

  // Returns the tag for an operation that begins now.
  void* Begin(std::shared_ptr<Object> object) {
    object_ = std::move(object);
    TsanRelease(static_cast<QueueEvent*>(this));
    return static_cast<QueueEvent*>(this);
  }

  void OnCompleted(bool ok) override {
    const std::shared_ptr<Object> object = std::move(object_);
    ((*object).*handler_)(ok);
    object->AfterEvent();
  }

 private:
  const Handler handler_;
  std::shared_ptr<Object> object_;
};

// A completion queue and its thread. In gRPC, every thread that waits at a queue polls all
// connections. That costs one or two wake-ups per message, so use as few queues as the load allows.
class CallQueue {
 public:
  using Task = absl::AnyInvocable<void() &&>;

  // Adds a queue to a server that is being built. `authenticator` admits the callers, and outlives
  // the queue. `spin` is the time for which the thread polls for the next event before it sleeps.
  CallQueue(grpc::ServerBuilder* builder, Authenticator* authenticator,
            std::chrono::microseconds spin = std::chrono::microseconds(0))
      : authenticator_(authenticator), spin_(spin), queue_(builder->AddCompletionQueue()) {}
  // Adds a queue for rare calls. New calls arrive at `accept_queue`, which outlives this queue.
  // While this queue has no call, its thread polls no connection.
  CallQueue(grpc::ServerBuilder* builder, CallQueue* accept_queue)
      : authenticator_(accept_queue->authenticator()),
        spin_(0),
        accept_queue_(accept_queue),
        queue_(builder->AddCompletionQueue(/*is_frequently_polled=*/false)) {}
  // The server must have been shut down.
  ~CallQueue();

  // Starts the thread. Call it after the server is built and the queue awaits calls.
  void Start();

  // Runs `task` on the queue's thread, after all earlier events of the queue. Until `task` runs,
  // HasCalls() must remain true. Otherwise the queue may be destroyed. Thread-safe.
  void Post(Task task);
  // Blocks until the queue's thread has handled all earlier events. Don't call it on that thread.
  void AwaitEarlierEvents();

  // These functions count the queue's calls: call AddCall() when a call arrives, and RemoveCall()
  // when the call is destroyed. Thread-safe.
  void AddCall();
  void RemoveCall();
  bool HasCalls() const;
  // Blocks until there is no call, or until the deadline.
  void AwaitNoCalls(std::chrono::steady_clock::time_point deadline);

  Authenticator* authenticator() const { return authenticator_; }
  grpc::ServerCompletionQueue* get() const { return queue_.get(); }
  // Returns the queue at which new calls arrive: this one, unless it was made with another.
  CallQueue* accept_queue() { return accept_queue_ != nullptr ? accept_queue_ : this; }

 private:
  void Run();
  // If calls arrive at another queue, blocks until there is a call or the queue ends.
  void AwaitCall();
  bool Next(void** tag, bool* ok);
  // If the queue has had events for a while without a pause, lets gRPC read from connections. gRPC
  // itself reads only when a thread finds no event. Events that result from the reads come after
  // those that are waiting. So waiting events don't stop gRPC from reading other connections. While
  // new calls arrive, does nothing, because nothing bounds the calls that gRPC would hold. `asked`
  // is when the thread asked for the current event.
  void ReadInput(std::chrono::steady_clock::time_point asked);

  Authenticator* const authenticator_;
  const std::chrono::microseconds spin_;
  CallQueue* const accept_queue_ = nullptr;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  grpc::CompletionQueue input_;  // has no events: ReadInput() polls connections through it
  std::chrono::steady_clock::time_point input_read_at_;
  std::atomic<bool> has_new_call_ = false;
  int quiet_events_ = 0;  // consecutive ones, in which no call has arrived
  std::thread thread_;

  mutable Mutex mu_;
  CondVar changed_;
  int calls_ ABSL_GUARDED_BY(mu_) = 0;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tensord::server
