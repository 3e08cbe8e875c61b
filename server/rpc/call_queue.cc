#include "tensord/server/rpc/call_queue.h"

#include <chrono>
#include <future>
#include <utility>

#include "tensord/common/handover.h"

namespace tensord::server {

QueuedCall::QueuedCall(CallQueue* queue) : queue_(queue) {
  for (int step = 0; step < kNumSteps; ++step) {
    tags_[step].call = this;
    tags_[step].step = static_cast<Step>(step);
  }
  context_.AsyncNotifyWhenDone(Begin(kDone));  // comes only where a client has
}

void* QueuedCall::Begin(Step step) {
  ++outstanding_;
  HandOver(this);
  HandOver(static_cast<QueueEvent*>(&tags_[step]));
  return static_cast<QueueEvent*>(&tags_[step]);
}

void QueuedCall::Abandon(Step /*step*/) { --outstanding_; }

void QueuedCall::Wake() {
  HandOver(this);
  HandOver(static_cast<QueueEvent*>(&tags_[kWoken]));
  alarm_.Set(queue_->get(), std::chrono::system_clock::time_point(),
             static_cast<QueueEvent*>(&tags_[kWoken]));
}

void QueuedCall::Tag::Happened(bool ok) {
  if (step == kCalled && !call->arrived_) {
    call->Arrive(ok);
  } else {
    call->Proceed(step, ok);
  }
}

void QueuedCall::Arrive(bool ok) {
  if (!ok) {
    delete this;  // the server shuts down; there is no call
    return;
  }
  arrived_ = true;
  queue_->CallBegan();
  AwaitNext();
  if (queue_->arrivals() == queue_->get()) {
    Proceed(kCalled, ok);
    return;
  }
  // On to the queue's own thread, where news of the call may come in meanwhile.
  grpc::ServerCompletionQueue* const own = queue_->get();
  HandOver(static_cast<QueueEvent*>(&tags_[kCalled]));
  alarm_.Set(own, std::chrono::system_clock::time_point(),
             static_cast<QueueEvent*>(&tags_[kCalled]));
}

void QueuedCall::Proceed(Step step, bool ok) {
  TakeOver(this);
  --outstanding_;
  if (step == kCalled) {
    called_ = true;
    Enter();
    if (done_early_) Done();
  } else if (!called_) {
    done_early_ = true;
  } else if (step == kDone) {
    Done();
  } else if (step == kRevoked) {
    Refuse(revoked_);
  } else {
    On(step, ok);
  }
  if (outstanding_ == 0) {
    CallQueue* queue = queue_;
    delete this;
    queue->CallEnded();
  } else {
    HandOver(this);
  }
}

void QueuedCall::Enter() {
  Begin(kRevoked);
  const absl::Status admitted =
      admission_.Enter(queue_->gate(), &context_, [this](const absl::Status& status) {
        revoked_ = status;
        HandOver(static_cast<QueueEvent*>(&tags_[kRevoked]));
        revoked_alarm_.Set(queue_->get(), std::chrono::system_clock::time_point(),
                           static_cast<QueueEvent*>(&tags_[kRevoked]));
      });
  if (!admitted.ok() || !admission_.may_end()) Abandon(kRevoked);
  if (admitted.ok()) {
    On(kCalled, true);
  } else {
    Refuse(admitted);
  }
}

void QueuedCall::Done() {
  if (admission_.Leave()) Abandon(kRevoked);
  if (context_.IsCancelled()) admission_.Cancelled();
  On(kDone, true);
}

void CallQueue::Settle() {
  class Marker final : public QueueEvent {
   public:
    void Happened(bool /*ok*/) override { reached_.set_value(); }
    void Await() { reached_.get_future().wait(); }

   private:
    std::promise<void> reached_;
  };
  Marker marker;
  grpc::Alarm alarm;
  CallBegan();
  HandOver(static_cast<QueueEvent*>(&marker));
  alarm.Set(queue_.get(), std::chrono::system_clock::time_point(),
            static_cast<QueueEvent*>(&marker));
  marker.Await();
  CallEnded();
}

void CallQueue::CallBegan() {
  MutexLock lock(&mu_);
  ++calls_;
  changed_.SignalAll();
}

void CallQueue::CallEnded() {
  MutexLock lock(&mu_);
  --calls_;
  changed_.SignalAll();
}

bool CallQueue::AnyCalls() const {
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
}

void CallQueue::Run() {
  void* tag = nullptr;
  bool ok = false;
  while (true) {
    if (door_ != nullptr) AwaitCall();
    if (!Next(&tag, &ok)) return;
    TakeOver(tag);
    static_cast<QueueEvent*>(tag)->Happened(ok);
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
      std::this_thread::yield();  // what comes next may come from a program that waits for this
                                  // core
    } while (std::chrono::steady_clock::now() < until);
  }
  return queue_->Next(tag, ok);
}

}  // namespace tensord::server
