// Raises statuses as exceptions, and keeps threads from failing at the end of the interpreter.
#include <unistd.h>

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <thread>

#include "absl/strings/cord.h"
#include "tensord/client/internal/wait_hooks.h"
#include "tensord/client/python/tensord/_core/core.h"
#include "tensord/client/python/tensord/_core/debug.h"
#include "tensord/common/status_details.h"
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

// The functions that another extension module has set (c_api.h). Null: none.
std::atomic<const internal::WaitHooks*> extension_hooks{nullptr};

// A wait that hides in an op.
struct HiddenWait {
  PyThreadState* state = nullptr;  // null: this thread didn't have the interpreter's lock
  const internal::WaitHooks* extension = extension_hooks;
  void* extension_state = nullptr;
};

void* BeginWait() {
  auto* const wait = new HiddenWait;
  if (PyGILState_Check() != 0) {
    ++ops_waiting;
    wait->state = PyEval_SaveThread();
  }
  if (wait->extension != nullptr) wait->extension_state = wait->extension->before();
  return wait;
}

void EndWait(void* begun) {
  const std::unique_ptr<HiddenWait> wait(static_cast<HiddenWait*>(begun));
  if (wait->extension != nullptr) wait->extension->after(wait->extension_state);
  if (wait->state == nullptr) return;
  TakeGil(wait->state);
  if (--ops_waiting == 0) OldValues().clear();
}

// Reads a varint of a protobuf message. Returns nullopt at the end.
std::optional<uint64_t> ReadVarint(absl::string_view* bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes->empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes->front());
    bytes->remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

// Returns the seconds of google.rpc.RetryInfo: field 1 of the Duration that is field 1.
std::optional<double> RetryAfter(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryInfoUrl);
  if (!payload.has_value()) return std::nullopt;
  const std::string encoded(*payload);
  absl::string_view bytes = encoded;
  if (ReadVarint(&bytes) != 0x0au || !ReadVarint(&bytes).has_value()) return std::nullopt;
  if (ReadVarint(&bytes) != 0x08u) return std::nullopt;
  const std::optional<uint64_t> seconds = ReadVarint(&bytes);
  return seconds.has_value() ? std::optional(static_cast<double>(*seconds)) : std::nullopt;
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
  // A wait that has begun calls the `after` that belongs to its `before`. So the old pair stays.
  static auto* const pairs = new std::deque<internal::WaitHooks>;
  static Mutex mu;
  MutexLock lock(&mu);
  extension_hooks = before == nullptr ? nullptr : &pairs->emplace_back(before, after);
}

void Assign(Box& box, Tensor value) {
  if (ops_waiting > 0) OldValues().push_back(box.value);
  box.value = std::move(value);
}

bool MayDonate(const Box& box) { return ops_waiting == 0 && box.value.state().use_count() == 1; }

void Raise(const absl::Status& error) {
  const std::optional<double> retry_after = RetryAfter(error);
  const std::string message(error.message());
  nb::object exception =
      nb::module_::import_("tensord._errors")
          .attr("from_status")(absl::StatusCodeToString(error.code()), message, ErrorReason(error),
                               retry_after.has_value() ? nb::object(nb::float_(*retry_after))
                                                       : nb::object(nb::none()));
  if (const std::string line = Debug().tracebacks ? LineOf(message) : ""; !line.empty()) {
    exception.attr("add_note")("The failed op was called at " + line);
  }
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

void RaiseTypeError(const std::string& message) {
  PyErr_SetString(PyExc_TypeError, message.c_str());
  throw nb::python_error();
}

void RaiseValueError(const std::string& message) {
  PyErr_SetString(PyExc_ValueError, message.c_str());
  throw nb::python_error();
}

}  // namespace tensord::python
