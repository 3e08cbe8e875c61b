// Waits without the interpreter's lock: signals during a wait, and the end of the interpreter.
#include "tensord/client/python/tensord/_core/waits.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>

#include "tensord/client/internal/wait_hooks.h"
#include "tensord/client/python/tensord/_core/core.h"
#include "tensord/common/util/mutex.h"

namespace tensord::python {
namespace {

// The thread that runs the interpreter's exit functions; none before the end.
std::atomic<std::thread::id> last_thread{};

// The number of ops that wait without the interpreter's lock. Guarded by the lock, as the values.
int ops_waiting = 0;
std::vector<Tensor>& OldValues() {
  static auto* values = new std::vector<Tensor>;
  return *values;
}

// The functions that another extension module has set (tensord_c.h). Null: none.
std::atomic<const internal::WaitHooks*> extension_hooks{nullptr};

// A wait that hides in an op.
struct HiddenWait {
  PyThreadState* state = nullptr;  // null: this thread didn't have the interpreter's lock
  // Set on the main thread, unless another wait of it already looks for signals.
  std::optional<internal::Interruption> interruption = std::nullopt;
  std::optional<internal::Interruption::Scope> scope = std::nullopt;
  const internal::WaitHooks* extension = extension_hooks;
  void* extension_state = nullptr;
};

void* BeginWait() {
  auto* const wait = new HiddenWait;
  const bool main = OnMainThread();
  if (PyGILState_Check() != 0) {
    ++ops_waiting;
    wait->state = PyEval_SaveThread();
    if (main) wait->interruption.emplace([wait] { return SignalRaises(&wait->state); });
  } else if (main && Py_IsInitialized() != 0 && internal::Interruption::OfThisThread() == nullptr) {
    wait->interruption.emplace(SignalRaisesHere);
  }
  if (wait->interruption.has_value()) wait->scope.emplace(&*wait->interruption);
  if (wait->extension != nullptr) wait->extension_state = wait->extension->before();
  return wait;
}

void EndWait(void* begun) {
  const std::unique_ptr<HiddenWait> wait(static_cast<HiddenWait*>(begun));
  if (wait->extension != nullptr) wait->extension->after(wait->extension_state);
  wait->scope.reset();
  if (wait->state == nullptr) return;
  TakeGil(wait->state);
  if (--ops_waiting == 0) OldValues().clear();
}

}  // namespace

void KeepOtherThreadsOut() { last_thread = std::this_thread::get_id(); }

void TakeGil(PyThreadState* state) {
  const std::thread::id last = last_thread;
  if (last != std::thread::id() && last != std::this_thread::get_id()) {
    while (true) pause();
  }
  PyEval_RestoreThread(state);
}

void InstallWaitHooks() {
  static constexpr internal::WaitHooks kHooks = {BeginWait, EndWait};
  internal::wait_hooks.store(&kHooks);
}

void SetWaitHooks(void* (*before)(), void (*after)(void*)) {
  extension_hooks = internal::KeepWaitHooks(before, after);
}

void Assign(Box& box, Tensor value) {
  if (ops_waiting > 0) OldValues().push_back(box.value);
  box.value = std::move(value);
}

bool MayDonate(const Box& box) { return ops_waiting == 0 && box.value.state().use_count() == 1; }

bool OnMainThread() { return syscall(SYS_gettid) == getpid(); }

bool SignalRaises(PyThreadState** state) {
  TakeGil(*state);
  const bool raised = PyErr_CheckSignals() != 0;
  *state = PyEval_SaveThread();
  return raised;
}

bool SignalRaisesHere() {
  const std::thread::id last = last_thread;
  if (last != std::thread::id() && last != std::this_thread::get_id()) return false;
  const PyGILState_STATE state = PyGILState_Ensure();
  const bool raised = PyErr_CheckSignals() != 0;
  PyGILState_Release(state);
  return raised;
}

bool RunOnOtherThread(const std::function<void()>& work) {
  PyThreadState* state = PyEval_SaveThread();
  const bool raised = RunOnOtherThread(work, [&state] { return SignalRaises(&state); });
  TakeGil(state);
  return raised;
}

bool RunOnOtherThread(const std::function<void()>& work, const std::function<bool()>& raises) {
  Mutex mu;
  CondVar changed;
  bool done = false;
  bool raised = false;
  internal::Interruption interruption;
  std::thread thread;
  try {
    thread = std::thread([&] {
      const internal::Interruption::Scope scope(&interruption);
      work();
      MutexLock lock(&mu);
      done = true;
      changed.Signal();
    });
  } catch (const std::system_error&) {  // no more threads: the work runs without looks for signals
    work();
    return false;
  }
  mu.Lock();
  while (!done) {
    if (changed.WaitFor(&mu, internal::Interruption::kCheckInterval) || raised) continue;
    mu.Unlock();
    raised = raises();
    if (raised) interruption.Interrupt();
    mu.Lock();
  }
  mu.Unlock();
  thread.join();
  return raised;
}

}  // namespace tensord::python
