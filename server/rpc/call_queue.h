// Completion queues of gRPC, each with its own thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "tensord/common/util/mutex.h"
#include "tensord/common/util/tsan_annotations.h"
#include "tensord/server/rpc/auth/authenticator.h"
#include "tensord/server/rpc/event_loop.h"

namespace tensord::server {

// The tag of an operation of an object. Keeps the object alive until the operation has ended. Then
// runs `handler` and the object's AfterEvent() on the queue's thread. The object's event_owner() is
// QueueEvent::owner(). Tags one operation at a time.
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

  const void* owner() const override { return object_->event_owner(); }
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
class CallQueue final : private EventLoop::Source {
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

  // Runs `task` on the queue's thread, after all earlier events of `owner` (QueueEvent::owner()).
  // Until `task` runs, HasCalls() must remain true. Otherwise the queue may be destroyed.
  // Thread-safe.
  void Post(Task task, const void* owner = nullptr);
  // Does the same after all earlier events of the queue.
  void PostBarrier(Task task);
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
  EventLoop::TakeResult Take(bool wait, QueueEvent** event, bool* ok) override;
  EventLoop::Time Now() override { return std::chrono::steady_clock::now(); }
  // If calls arrive at another queue, blocks until there is a call or the queue ends.
  void AwaitCall();

  Authenticator* const authenticator_;
  const std::chrono::microseconds spin_;
  CallQueue* const accept_queue_ = nullptr;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  EventLoop loop_{this};
  std::thread thread_;

  mutable Mutex mu_;
  CondVar changed_;
  int calls_ ABSL_GUARDED_BY(mu_) = 0;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tensord::server
