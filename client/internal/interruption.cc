#include "tensord/client/internal/interruption.h"

#include <grpcpp/client_context.h>

#include <algorithm>

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

absl::Status InterruptedError() { return absl::CancelledError("the wait was interrupted"); }

}  // namespace tensord::internal
