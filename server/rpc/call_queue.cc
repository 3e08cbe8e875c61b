#include "tensord/server/rpc/call_queue.h"

#include <chrono>
#include <future>

#include "tensord/common/handover.h"

namespace tensord::server {

QueuedCall::QueuedCall(CallQueue* queue) : queue_(queue) {
  for (int step = 0; step < kNumSteps; ++step) {
    tags_[step].call = this;
    tags_[step].step = static_cast<Step>(step);
  }
  context_.AsyncNotifyWhenDone(static_cast<QueueEvent*>(&tags_[kDone]));
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

void QueuedCall::Proceed(Step step, bool ok) {
  TakeOver(this);
  --outstanding_;
  if (step == kCalled && ok) {
    ++outstanding_;  // kDone, which comes only where a call has begun
    AwaitNext();
  }
  // Where the server shuts down before a client came there is no call.
  if (step != kCalled || ok) On(step, ok);
  if (outstanding_ == 0) {
    delete this;
  } else {
    HandOver(this);
  }
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
  HandOver(static_cast<QueueEvent*>(&marker));
  alarm.Set(queue_.get(), std::chrono::system_clock::time_point(),
            static_cast<QueueEvent*>(&marker));
  marker.Await();
}

void CallQueue::Start() {
  thread_ = std::thread([this] { Run(); });
}

CallQueue::~CallQueue() {
  queue_->Shutdown();
  if (thread_.joinable()) {
    thread_.join();
  } else {
    Run();
  }
}

void CallQueue::Run() {
  void* tag = nullptr;
  bool ok = false;
  while (Next(&tag, &ok)) {
    TakeOver(tag);
    static_cast<QueueEvent*>(tag)->Happened(ok);
  }
}

bool CallQueue::Next(void** tag, bool* ok) {
  if (spin_.count() > 0) {
    const auto until = std::chrono::steady_clock::now() + spin_;
    do {
      const auto next = queue_->AsyncNext(tag, ok, gpr_time_0(GPR_CLOCK_MONOTONIC));
      if (next == grpc::CompletionQueue::GOT_EVENT) return true;
      if (next == grpc::CompletionQueue::SHUTDOWN) return false;
    } while (std::chrono::steady_clock::now() < until);
  }
  return queue_->Next(tag, ok);
}

}  // namespace tensord::server
