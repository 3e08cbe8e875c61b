#include "tensord/client/internal/fork_guard.h"

#include <pthread.h>

namespace tensord::internal {

std::atomic<bool> in_forked_child{false};

namespace {

std::atomic<bool> has_connected{false};

void OnForkInChild() {
  if (has_connected.load(std::memory_order_relaxed)) in_forked_child.store(true);
}

// Registers the handler before main(). If the first Connect registered it, another thread could
// fork at the same time without running it.
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, &OnForkInChild);

}  // namespace

absl::Status ForkedError() {
  return absl::FailedPreconditionError(
      "this process was forked from one that had connected to tensord, and connections don't "
      "survive a fork: connect after an exec, or start worker processes before the first Connect "
      "(in Python: with the \"spawn\" start method)");
}

void RecordConnect() { has_connected.store(true); }

}  // namespace tensord::internal
