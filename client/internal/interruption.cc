#include "tensord/client/internal/interruption.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>

#include <algorithm>

#include "absl/time/clock.h"

namespace tensord::internal {

void Interruption::Interrupt() {
  MutexLock lock(&mu_);
  interrupted_.store(true, std::memory_order_release);
  for (grpc::ClientContext* call : calls_) call->TryCancel();
}

bool Interruption::Check() {
  if (!interrupted() && check_ && check_()) Interrupt();
  return interrupted();
}

Interruption::CallScope::CallScope(grpc::ClientContext* context)
    : interruption_(OfThisThread()), context_(context) {
  if (interruption_ == nullptr) return;
  MutexLock lock(&interruption_->mu_);
  interruption_->calls_.push_back(context);
  if (interruption_->interrupted()) context->TryCancel();
}

Interruption::CallScope::~CallScope() {
  if (interruption_ == nullptr) return;
  MutexLock lock(&interruption_->mu_);
  std::vector<grpc::ClientContext*>& calls = interruption_->calls_;
  calls.erase(std::find(calls.begin(), calls.end(), context_));
}

void WaitOrCheck(CondVar* changed, Mutex* mu) {
  Interruption* const interruption = Interruption::OfThisThread();
  if (interruption == nullptr) return changed->Wait(mu);
  if (changed->WaitFor(mu, Interruption::kCheckInterval)) return;
  mu->Unlock();
  interruption->Check();
  mu->Lock();
}

void* NextOrCheck(grpc::CompletionQueue* queue) {
  void* tag = nullptr;
  bool ok = false;
  Interruption* const interruption = Interruption::OfThisThread();
  if (interruption == nullptr) {
    queue->Next(&tag, &ok);
    return tag;
  }
  const auto soon = [] { return std::chrono::system_clock::now() + Interruption::kCheckInterval; };
  while (queue->AsyncNext(&tag, &ok, soon()) == grpc::CompletionQueue::TIMEOUT) {
    interruption->Check();
  }
  return tag;
}

void SleepUnlessInterrupted(absl::Duration duration) {
  Interruption* const interruption = Interruption::OfThisThread();
  if (interruption == nullptr) return absl::SleepFor(duration);
  const absl::Time end = absl::Now() + duration;
  for (absl::Duration left = duration; left > absl::ZeroDuration() && !interruption->Check();
       left = end - absl::Now()) {
    absl::SleepFor(std::min(left, absl::FromChrono(Interruption::kCheckInterval)));
  }
}

absl::Status InterruptedError() { return absl::CancelledError("the wait was interrupted"); }

absl::Status PollUntil(absl::FunctionRef<bool()> ready) {
  constexpr auto kPause = std::chrono::microseconds(50);
  Interruption* const interruption = Interruption::OfThisThread();
  const auto next_check = [] {
    return std::chrono::steady_clock::now() + Interruption::kCheckInterval;
  };
  auto check = next_check();
  while (!ready()) {
    absl::SleepFor(absl::FromChrono(kPause));
    if (interruption == nullptr || std::chrono::steady_clock::now() < check) continue;
    if (interruption->Check()) return InterruptedError();
    check = next_check();
  }
  return absl::OkStatus();
}

}  // namespace tensord::internal
