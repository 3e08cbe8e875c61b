#include "tensord/server/rpc/call_queue.h"

#include <grpcpp/alarm.h>

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "tensord/common/util/tsan_annotations.h"

namespace tensord::server {
namespace {

// After a thread has had events for this time without a pause, it lets gRPC read.
constexpr std::chrono::microseconds kMaxTimeWithoutInput{200};
// Next() takes less than this if an event was waiting, unless the thread is interrupted.
constexpr std::chrono::microseconds kMaxTakeTime{5};
// If Next() takes this long, it has polled connections.
constexpr std::chrono::microseconds kMinWait{50};
// A flood of short calls that the thread hasn't seen takes memory that no caller is charged for. So
// gRPC reads no more until so many events have come without a new call.
constexpr int kMinQuietEvents = 256;
// gRPC reads from one connection each time it is asked.
constexpr int kConnectionsAtOnce = 16;

// Owns itself until its task has run.
class PostedTask final : public QueueEvent {
 public:
  explicit PostedTask(CallQueue::Task task) : task_(std::move(task)) {}

  void Post(grpc::CompletionQueue* queue) {
    TsanRelease(static_cast<QueueEvent*>(this));
    alarm_.Set(queue, std::chrono::system_clock::time_point(), static_cast<QueueEvent*>(this));
  }

  void OnCompleted(bool /*ok*/) override {
    const std::unique_ptr<PostedTask> self(this);
    std::move(task_)();
  }

 private:
  grpc::Alarm alarm_;
  CallQueue::Task task_;
};

}  // namespace

void CallQueue::Post(Task task) { (new PostedTask(std::move(task)))->Post(queue_.get()); }

void CallQueue::AwaitEarlierEvents() {
  std::promise<void> reached;
  AddCall();
  Post([&reached] { reached.set_value(); });
  reached.get_future().wait();
  RemoveCall();
}

void CallQueue::AddCall() {
  MutexLock lock(&mu_);
  ++calls_;
  has_new_call_.store(true, std::memory_order_relaxed);
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
  thread_ = std::thread([this] { Run(); });
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
    Run();
  }
  input_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (input_.Next(&tag, &ok)) {
  }
}

void CallQueue::Run() {
  void* tag = nullptr;
  bool ok = false;
  while (true) {
    if (accept_queue_ != nullptr) AwaitCall();
    const auto asked = std::chrono::steady_clock::now();
    if (!Next(&tag, &ok)) return;
    ReadInput(asked);
    TsanAcquire(tag);
    static_cast<QueueEvent*>(tag)->OnCompleted(ok);
  }
}

void CallQueue::ReadInput(std::chrono::steady_clock::time_point asked) {
  quiet_events_ = has_new_call_.load(std::memory_order_relaxed) ? 0 : quiet_events_ + 1;
  if (quiet_events_ == 0) has_new_call_.store(false, std::memory_order_relaxed);
  const auto now = std::chrono::steady_clock::now();
  const auto waited = now - asked;
  if (waited >= kMinWait) input_read_at_ = now;  // Next() has polled
  if (waited >= kMaxTakeTime || now - input_read_at_ < kMaxTimeWithoutInput) return;
  if (quiet_events_ < kMinQuietEvents) return;
  input_read_at_ = now;
  void* tag = nullptr;
  bool ok = false;
  for (int i = 0; i < kConnectionsAtOnce; ++i) {
    input_.AsyncNext(&tag, &ok, gpr_time_0(GPR_CLOCK_MONOTONIC));
  }
}

void CallQueue::AwaitCall() {
  MutexLock lock(&mu_);
  while (calls_ == 0 && !ending_) changed_.Wait(&mu_);
}

bool CallQueue::Next(void** tag, bool* ok) {
  if (spin_.count() > 0) {
    const auto until = std::chrono::steady_clock::now() + spin_;
    do {
      const auto next = queue_->AsyncNext(tag, ok, gpr_time_0(GPR_CLOCK_MONOTONIC));
      if (next == grpc::CompletionQueue::GOT_EVENT) return true;
      if (next == grpc::CompletionQueue::SHUTDOWN) return false;
      // The next message may depend on a program that waits for this core.
      std::this_thread::yield();
    } while (std::chrono::steady_clock::now() < until);
  }
  return queue_->Next(tag, ok);
}

}  // namespace tensord::server
