#include "tensord/client/internal/stream_events.h"

#include <algorithm>
#include <thread>

#include "tensord/client/internal/interruption.h"

namespace tensord::internal {
namespace {

StreamEvents::Occurrence FromTag(void* tag, bool ok) {
  return {static_cast<StreamEvent>(reinterpret_cast<intptr_t>(tag)), ok};
}

}  // namespace

std::optional<StreamEvents::Occurrence> StreamEvents::Next() {
  void* tag = nullptr;
  bool ok = false;
  if (!queue_.Next(&tag, &ok)) return std::nullopt;
  return FromTag(tag, ok);
}

std::optional<StreamEvents::Occurrence> StreamEvents::SpinForNext() {
  if (spin_ > spin_.zero()) {
    void* tag = nullptr;
    bool ok = false;
    const auto until = Clock::now() + spin_;
    do {
      const auto next = queue_.AsyncNext(&tag, &ok, gpr_time_0(GPR_CLOCK_MONOTONIC));
      if (next == grpc::CompletionQueue::GOT_EVENT) return FromTag(tag, ok);
      std::this_thread::yield();  // a server on this machine may need the core
    } while (Clock::now() < until);
  }
  Interruption* const interruption = Interruption::OfThisThread();
  if (interruption == nullptr) return Next();
  const auto occurrence = NextWithin(Interruption::kCheckInterval);
  if (!occurrence.has_value()) interruption->Check();
  return occurrence;
}

std::optional<StreamEvents::Occurrence> StreamEvents::NextUntil(Clock::time_point deadline) {
  return NextWithin(std::max(deadline - Clock::now(), Clock::duration::zero()));
}

std::optional<StreamEvents::Occurrence> StreamEvents::NextWithin(std::chrono::nanoseconds timeout) {
  void* tag = nullptr;
  bool ok = false;
  const gpr_timespec until = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                          gpr_time_from_nanos(timeout.count(), GPR_TIMESPAN));
  if (queue_.AsyncNext(&tag, &ok, until) != grpc::CompletionQueue::GOT_EVENT) return std::nullopt;
  return FromTag(tag, ok);
}

void StreamEvents::ShutDown() {
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

}  // namespace tensord::internal
