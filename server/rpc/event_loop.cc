#include "tensord/server/rpc/event_loop.h"

#include <algorithm>

namespace tensord::server {

void EventLoop::Run() {
  while (true) {
    if (ready_ == 0 && barrier_.event == nullptr) {
      Ready next = {};
      const Time asked = source_->Now();
      if (source_->Take(/*wait=*/true, &next.event, &next.ok) == TakeResult::kEnd) return;
      const Time now = source_->Now();
      if (now - asked >= kMinWait) last_drain_ = now;
      if (now - last_drain_ < kMaxTimeWithoutInput) {
        next.event->OnCompleted(next.ok);
        continue;
      }
      Add(next);
    }
    if (source_->Now() - last_drain_ >= kMaxTimeWithoutInput) Drain();
    RunNext();
  }
}

void EventLoop::Drain() {
  int reads = 0;
  while (reads < kConnectionsAtOnce && ready_ < kMaxReady) {
    // A new call must be handled first. Then gRPC returns the next call that it holds, without
    // reading from a connection.
    if (new_calls_ > 0 || barrier_.event != nullptr) return;
    Ready next = {};
    const TakeResult got = source_->Take(/*wait=*/false, &next.event, &next.ok);
    if (got == TakeResult::kEnd) break;
    if (got == TakeResult::kEvent) {
      Add(next);
    } else {
      ++reads;
    }
  }
  last_drain_ = source_->Now();
}

void EventLoop::Add(Ready ready) {
  const QueueEvent::Kind kind = ready.event->kind();
  if (kind == QueueEvent::Kind::kBarrier) {
    barrier_ = ready;
    return;
  }
  if (kind == QueueEvent::Kind::kNewCall) ++new_calls_;
  ++ready_;
  const void* const owner = ready.event->owner();
  auto lane = std::find_if(lanes_.begin(), lanes_.end(),
                           [owner](const Lane& each) { return each.owner == owner; });
  if (lane == lanes_.end()) lane = lanes_.insert(lane, Lane{owner, {}});
  lane->events.push_back(ready);
}

void EventLoop::RunNext() {
  if (ready_ == 0) {
    const Ready next = std::exchange(barrier_, {});
    return next.event->OnCompleted(next.ok);
  }
  Lane lane = std::move(lanes_.front());
  lanes_.pop_front();
  const Ready next = lane.events.front();
  lane.events.pop_front();
  if (!lane.events.empty()) lanes_.push_back(std::move(lane));
  --ready_;
  if (next.event->kind() == QueueEvent::Kind::kNewCall) --new_calls_;
  next.event->OnCompleted(next.ok);
}

}  // namespace tensord::server
