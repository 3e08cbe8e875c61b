// What Python adds to the C interface (client/c), and the capsule with its table.
#include "tensord/client/c/embedding.h"

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/c/tensord_c.h"
#include "tensord/client/internal/connect_option.h"
#include "tensord/client/internal/enqueue.h"
#include "tensord/client/python/tensord/_core/core.h"
#include "tensord/client/python/tensord/_core/debug.h"
#include "tensord/client/python/tensord/_core/waits.h"

namespace tensord::python {
namespace {

using c::WaitKind;

// Runs `wait` without the interpreter's lock, if this thread has it. If a signal's handler raises
// an exception meanwhile, ends the wait, and returns its error. The exception is set then.
absl::Status WaitWithoutGil(absl::FunctionRef<absl::Status()> wait, WaitKind kind) {
  if (!OnMainThread() || kind == WaitKind::kUninterrupted) {
    return PyGILState_Check() != 0 ? WithoutGil(wait) : wait();
  }
  if (PyGILState_Check() == 0) {
    if (Py_IsInitialized() == 0) return wait();
    return InterruptibleWithoutGil(wait, kind == WaitKind::kCalls);
  }
  try {
    return kind == WaitKind::kCalls ? InterruptibleCall(wait) : Interruptible(wait);
  } catch (nb::python_error& e) {
    e.restore();
    return internal::InterruptedError();
  }
}

// Returns the status of a Python exception. The caller has the interpreter's lock.
absl::Status ToStatus(nb::python_error& raised) {
  auto code = absl::StatusCode::kUnknown;
  std::string message = "a Python exception without a text";
  try {
    message = nb::cast<std::string>(nb::str(raised.value()));
    const nb::object name = nb::getattr(raised.value(), "code", nb::none());
    for (int i = 1; i <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++i) {
      const auto candidate = static_cast<absl::StatusCode>(i);
      if (nb::str(absl::StatusCodeToString(candidate).c_str()).equal(name)) code = candidate;
    }
  } catch (const std::exception&) {  // such as a text that isn't UTF-8
  }
  return absl::Status(code, message);
}

// Runs `body` with the interpreter's lock. A tensord.Error becomes a status. Any other exception
// stays set, and the result is CANCELLED.
template <typename Body>
absl::Status RunPython(Body body) {
  const nb::gil_scoped_acquire gil;
  try {
    body();
    return absl::OkStatus();
  } catch (nb::python_error& e) {
    if (e.matches(nb::module_::import_("tensord._errors").attr("Error"))) return ToStatus(e);
    e.restore();
    return internal::InterruptedError();
  } catch (const std::exception& e) {
    return absl::UnknownError(e.what());
  }
}

absl::Status ConnectInPython(const std::string& addresses,
                             const std::vector<std::pair<std::string, std::string>>& options) {
  ConnectOptions checked;  // tensord.connect() would raise other exceptions than tensord.Error
  for (const auto& [name, value] : options) {
    if (const absl::Status set = internal::SetConnectOption(name, value, &checked); !set.ok())
      return set;
  }
  return RunPython([&] {
    nb::dict arguments;
    for (const auto& [name, value] : options) arguments[name.c_str()] = value;
    const nb::object given =
        addresses.empty() ? nb::none() : nb::object(nb::str(addresses.c_str()));
    nb::module_::import_("tensord").attr("connect")(given, **arguments);
  });
}

absl::StatusOr<std::vector<Device>> CurrentDevices() {
  std::vector<Device> devices;
  const absl::Status status = RunPython([&] { devices = AllDevices(); });
  if (!status.ok()) return status;
  return devices;
}

// With the line of Python that called the op that failed, if TENSORD_DEBUG asks for it.
std::string MessageForPython(const absl::Status& error) {
  std::string message = ForPython(error.message());
  if (!Debug().tracebacks || Py_IsInitialized() == 0) return message;
  const nb::gil_scoped_acquire gil;
  if (const std::string line = LineOf(error.message()); !line.empty())
    absl::StrAppend(&message, "\nThe failed op was called at ", line);
  return message;
}

// Does what TENSORD_DEBUG asks for with a tensor that an op has made.
absl::Status ObserveInDebugModes(const Tensor& made) {
  if (Debug().tracebacks && Py_IsInitialized() != 0) {
    const nb::gil_scoped_acquire gil;
    RememberLine(made);
  }
  if (!Debug().sync || internal::IsRecorded(made)) return absl::OkStatus();
  return WaitWithoutGil([&] { return made.Wait(); }, WaitKind::kStream);
}

bool HasException() {
  if (Py_IsInitialized() == 0) return false;
  const nb::gil_scoped_acquire gil;
  return PyErr_Occurred() != nullptr;
}

void* ToObject(const Tensor& tensor) {
  const nb::gil_scoped_acquire gil;
  return Guarded<PyObject*>(nullptr, [&] { return Wrap(tensor).release().ptr(); });
}

bool FromObject(void* object, Tensor* value) {
  const nb::gil_scoped_acquire gil;
  const Tensor* const found = TensorOrNull(static_cast<PyObject*>(object));
  if (found != nullptr) *value = *found;
  return found != nullptr;
}

}  // namespace

void BindCApi(nb::module_& m) {
  static const c::Embedding kEmbedding = {
      .wait = WaitWithoutGil,
      .connect = ConnectInPython,
      .devices = CurrentDevices,
      .message = MessageForPython,
      .observe = Debug().any() ? ObserveInDebugModes : nullptr,
      .set_wait_hooks = SetWaitHooks,
      .raised = HasException,
      .to_object = ToObject,
      .from_object = FromObject,
  };
  c::SetEmbedding(kEmbedding);
  // PyCapsule_New takes a pointer to mutable memory, which no function writes.
  m.attr("_C_API") =
      nb::capsule(const_cast<TensordApi*>(tensord_api()), TENSORD_C_API_CAPSULE);  // NOLINT
}

}  // namespace tensord::python
