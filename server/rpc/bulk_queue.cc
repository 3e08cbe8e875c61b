#include "tensord/server/rpc/bulk_queue.h"

#include <chrono>

#include "tensord/common/handover.h"

namespace tensord::server {

BulkCall::BulkCall(BulkQueue* queue) : queue_(queue) {
  for (int step = 0; step < kNumSteps; ++step) tags_[step] = {this, static_cast<Step>(step)};
  context_.AsyncNotifyWhenDone(&tags_[kDone]);
}

void* BulkCall::Begin(Step step) {
  ++outstanding_;
  HandOver(this);
  return &tags_[step];
}

void BulkCall::Abandon(Step /*step*/) { --outstanding_; }

void BulkCall::Wake() {
  HandOver(this);
  alarm_.Set(queue_->get(), std::chrono::system_clock::time_point(), &tags_[kWoken]);
}

void BulkCall::Proceed(Step step, bool ok) {
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

void BulkQueue::Start() {
  thread_ = std::thread([this] { Run(); });
}

BulkQueue::~BulkQueue() {
  queue_->Shutdown();
  if (thread_.joinable()) {
    thread_.join();
  } else {
    Run();
  }
}

void BulkQueue::Run() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) {
    const auto* event = static_cast<BulkCall::Tag*>(tag);
    event->call->Proceed(event->step, ok);
  }
}

}  // namespace tensord::server
