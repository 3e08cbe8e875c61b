#include "tensord/server/rpc/call_queue.h"

#include <grpcpp/alarm.h>

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "tensord/common/util/tsan_annotations.h"

namespace tensord::server {
namespace {

// Owns itself until its task has run.
class PostedTask final : public QueueEvent {
 public:
  PostedTask(CallQueue::Task task, Kind kind, const void* owner)
      : task_(std::move(task)), kind_(kind), owner_(owner) {}

  void Post(grpc::CompletionQueue* queue) {
    TsanRelease(static_cast<QueueEvent*>(this));
    alarm_.Set(queue, std::chrono::system_clock::time_point(), static_cast<QueueEvent*>(this));
  }

  Kind kind() const override { return kind_; }
  const void* owner() const override { return owner_; }
  void OnCompleted(bool /*ok*/) override {
    const std::unique_ptr<PostedTask> self(this);
    std::move(task_)();
  }

 private:
  grpc::Alarm alarm_;
  CallQueue::Task task_;
  const Kind kind_;
  const void* const owner_;
};

}  // namespace

void CallQueue::Post(Task task, const void* owner) {
  (new PostedTask(std::move(task), QueueEvent::Kind::kOfOwner, owner))->Post(queue_.get());
}

void CallQueue::PostBarrier(Task task) {
  (new PostedTask(std::move(task), QueueEvent::Kind::kBarrier, nullptr))->Post(queue_.get());
}

void CallQueue::AwaitEarlierEvents() {
  std::promise<void> reached;
  AddCall();
  PostBarrier([&reached] { reached.set_value(); });
  reached.get_future().wait();
  RemoveCall();
}

void CallQueue::AddCall() {
  MutexLock lock(&mu_);
  ++calls_;
  changed_.SignalAll();
}

void CallQueue::RemoveCall() {
  MutexLock lock(&mu_);
  --calls_;
  changed_.SignalAll();
}

bool CallQueue::HasCalls() const {
  MutexLock lock(&mu_);
  return calls_ > 0;
}

void CallQueue::AwaitNoCalls(std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(&mu_);
  while (calls_ > 0) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= left.zero()) return;
    changed_.WaitFor(&mu_, left);
  }
}

void CallQueue::Start() {
  thread_ = std::thread([this] { loop_.Run(); });
}

CallQueue::~CallQueue() {
  queue_->Shutdown();
  {
    MutexLock lock(&mu_);
    ending_ = true;
  }
  changed_.SignalAll();
  if (thread_.joinable()) {
    thread_.join();
  } else {
    loop_.Run();
  }
}

void CallQueue::AwaitCall() {
  MutexLock lock(&mu_);
  while (calls_ == 0 && !ending_) changed_.Wait(&mu_);
}

EventLoop::TakeResult CallQueue::Take(bool wait, QueueEvent** event, bool* ok) {
  using Status = grpc::CompletionQueue::NextStatus;
  void* tag = nullptr;
  Status status = Status::TIMEOUT;
  const auto poll = [&] {
    status = queue_->AsyncNext(&tag, ok, gpr_time_0(GPR_CLOCK_MONOTONIC));
    return status != Status::TIMEOUT;
  };
  if (!wait) {
    poll();
  } else {
    if (accept_queue_ != nullptr) AwaitCall();
    const auto until = Now() + spin_;
    // The next message may depend on a program that waits for this core.
    while (spin_.count() > 0 && !poll() && Now() < until) std::this_thread::yield();
    if (status == Status::TIMEOUT) {
      status = queue_->Next(&tag, ok) ? Status::GOT_EVENT : Status::SHUTDOWN;
    }
  }
  if (status == Status::TIMEOUT) return EventLoop::TakeResult::kNothing;
  if (status == Status::SHUTDOWN) return EventLoop::TakeResult::kEnd;
  TsanAcquire(tag);
  *event = static_cast<QueueEvent*>(tag);
  return EventLoop::TakeResult::kEvent;
}

}  // namespace tensord::server
