// Calls on completion queues with threads of their own: a payload comes and goes as the slices of
// gRPC's own buffers, and what a queue serves never waits behind what another does.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

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

// A call driven by the thread of one queue, on which all but Wake() runs. Made before its client
// comes; deletes itself when the call has ended and nothing that was begun is outstanding.
class QueuedCall {
 public:
  // What may be outstanding, each at most once at a time.
  enum Step { kCalled, kRead, kWritten, kWoken, kFinished, kDone, kNumSteps };

  explicit QueuedCall(CallQueue* queue);
  virtual ~QueuedCall() = default;
  QueuedCall(const QueuedCall&) = delete;
  QueuedCall& operator=(const QueuedCall&) = delete;

 protected:
  // What was begun as `step` has ended. After kCalled comes kDone once, when the call has ended for
  // gRPC, by us or by the client.
  virtual void On(Step step, bool ok) = 0;
  // The client has come; another of the same kind is to wait for the next one.
  virtual void AwaitNext() = 0;

  // The tag for an operation that begins now.
  void* Begin(Step step);
  // What was begun won't end by itself: no tag of it will come.
  void Abandon(Step step);
  // Ends kWoken, begun before; from any thread.
  void Wake();

  CallQueue* queue() const { return queue_; }
  grpc::ServerContext& context() { return context_; }

 private:
  friend class CallQueue;
  struct Tag final : QueueEvent {
    void Happened(bool ok) override { call->Proceed(step, ok); }
    QueuedCall* call;
    Step step;
  };

  // Runs On(), and deletes the call where that was the last.
  void Proceed(Step step, bool ok);

  CallQueue* const queue_;
  grpc::ServerContext context_;
  grpc::Alarm alarm_;
  Tag tags_[kNumSteps];
  int outstanding_ = 0;
};

// A completion queue and its thread.
class CallQueue {
 public:
  // Before the server is built. `spin`: how long the thread looks for what comes next before it
  // sleeps.
  explicit CallQueue(grpc::ServerBuilder* builder,
                     std::chrono::microseconds spin = std::chrono::microseconds(0))
      : spin_(spin), queue_(builder->AddCompletionQueue()) {}
  // The server must have been shut down.
  ~CallQueue();

  // Once the server is built and the calls to come have been asked for.
  void Start();

  // Waits until everything that has happened so far has been handled. Not on the queue's thread.
  void Settle();

  grpc::ServerCompletionQueue* get() const { return queue_.get(); }

 private:
  void Run();
  bool Next(void** tag, bool* ok);

  const std::chrono::microseconds spin_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::thread thread_;
};

}  // namespace tensord::server
