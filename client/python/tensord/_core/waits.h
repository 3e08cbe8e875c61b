// Waits of threads that don't hold the interpreter's lock, such as those of PyTorch's ops.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "tensord/client/internal/interruption.h"

namespace tensord::python {

// Runs the handlers of signals that have come, and returns whether one raised an exception, which
// stays set. Only the main thread may call this, without the lock.
bool SignalRaisesHere();

// Does the same as RunOnOtherThread(work) (core.h) for a thread without the lock. `raises` returns
// whether a signal's handler raised an exception.
bool RunOnOtherThread(const std::function<void()>& work, const std::function<bool()>& raises);

// Runs `wait` on the main thread. If a signal's handler raises an exception meanwhile, ends the
// wait and returns its error; the thread's exception is set then. `makes_calls` says that `wait`
// does more than to wait for the command stream, or in Tensor::Wait (core.h, InterruptibleCall).
template <typename Wait>
absl::Status InterruptibleWithoutGil(Wait wait, bool makes_calls) {
  bool raised = false;
  absl::Status status;
  if (makes_calls) {
    raised = RunOnOtherThread([&] { status = wait(); }, SignalRaisesHere);
  } else {
    internal::Interruption interruption([&] { return raised = SignalRaisesHere(); });
    const internal::Interruption::Scope scope(&interruption);
    status = wait();
  }
  return raised ? internal::InterruptedError() : status;
}

}  // namespace tensord::python
