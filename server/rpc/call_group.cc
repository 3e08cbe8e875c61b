#include "tensord/server/rpc/call_group.h"

#include "tensord/server/rpc/server_call.h"

namespace tensord::server {

void CallGroup::Drain() {
  MutexLock lock(&mu_);
  draining_ = true;
  for (ServerCall* call : calls_) call->PostDrain(&ServerCall::OnDrain);
}

void CallGroup::EndDrain() {
  MutexLock lock(&mu_);
  for (ServerCall* call : calls_) call->PostDrain(&ServerCall::OnDrainTimeout);
}

void CallGroup::AwaitNone(std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(&mu_);
  while (!calls_.empty()) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= left.zero()) return;
    changed_.WaitFor(&mu_, left);
  }
}

bool CallGroup::Add(ServerCall* call) {
  MutexLock lock(&mu_);
  if (draining_) return false;
  calls_.insert(call);
  return true;
}

void CallGroup::Remove(ServerCall* call) {
  MutexLock lock(&mu_);
  calls_.erase(call);
  if (calls_.empty()) changed_.SignalAll();
}

}  // namespace tensord::server
