// What the files of the Python extension tensord._core share.
#pragma once

#include <nanobind/nanobind.h>
// All files have the same converters: a file without one would compile, and throw std::bad_cast.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/client/device.h"
#include "tensord/client/internal/interruption.h"
#include "tensord/client/internal/session.h"
#include "tensord/client/ops.h"
#include "tensord/client/scalar.h"
#include "tensord/client/tensor.h"
#include "tensord/common/dtype.h"
#include "tensord/common/shape.h"

#ifdef Py_LIMITED_API
// Every CPython exports it, but its headers hide it from modules with the stable ABI.
extern "C" int PyGILState_Check(void);
#endif

namespace tensord::python {

namespace nb = nanobind;

// The C++ object of a Python Tensor. Operators in place, and x[i] = v, put a new value into it.
struct Box {
  Tensor value;
};

// Functions hold references to the values of boxes. An op releases the interpreter's lock while the
// command queue is full, so another thread may assign to a box that the op uses. Assign() then
// keeps the old value until no op waits. The caller has the lock.
void Assign(Box& box, Tensor value);
// Returns whether an op may overwrite the value: only this box has it, and no op of another thread
// waits.
bool MayDonate(const Box& box);

// Each function adds the classes and functions of one file to the module.
void BindDTypes(nb::module_& m);
void BindClient(nb::module_& m);
nb::class_<Box> BindTensor(nb::module_& m);  // operators.cc, indexing.cc and interchange.cc help
void BindInterchange(nb::module_& m, nb::class_<Box>& tensor);
void BindDlpack(nb::module_& m, nb::class_<Box>& tensor);
void BindFunctions(nb::module_& m, nb::class_<Box>& tensor);
void BindPrograms(nb::module_& m);
void BindFiles(nb::module_& m);
void BindGroups(nb::module_& m);
void BindCApi(nb::module_& m);

// ---------------------------------------------------------------- errors (errors.cc)

// Returns a message of the client library or the server with Python's names in place of those of
// C++ (messages.cc). Exceptions and texts of tensors have such messages.
std::string ForPython(absl::string_view message);
// Raises the exception of tensord._errors for the code of `error`, which must not be OK.
[[noreturn]] void Raise(const absl::Status& error);
inline void RaiseIfError(const absl::Status& status) {
  if (!status.ok()) Raise(status);
}
template <typename T>
T Unwrap(absl::StatusOr<T> value) {
  if (!value.ok()) Raise(value.status());
  return *std::move(value);
}
// Raises a TypeError.
[[noreturn]] void RaiseTypeError(const std::string& message);
[[noreturn]] void RaiseValueError(const std::string& message);

// Runs `body`, and sets the Python exception for a C++ exception. Returns `failed` then. Code that
// Python calls directly, not by nanobind, runs in this function.
template <typename Result, typename Body>
Result Guarded(Result failed, Body body) noexcept;

// ---------------------------------------------------------------- waits (waits.cc)

// Runs `wait` without the interpreter's lock.
template <typename Wait>
auto WithoutGil(Wait wait);
// Runs `wait`, which waits for the command stream or in Tensor::Wait, without the interpreter's
// lock. If a signal's handler raises an exception meanwhile, such as KeyboardInterrupt, ends the
// wait and raises it. Python runs these handlers on the main thread. Also ends the wait when `stop`
// returns true; null: never.
template <typename Wait>
auto Interruptible(Wait wait, const std::function<bool()>& stop = nullptr);
// Does the same for a `wait` that makes other calls, too. On the main thread it costs some 20 µs
// more: another thread runs `wait`, because gRPC's blocking calls can't look for signals.
template <typename Wait>
auto InterruptibleCall(Wait wait);
// Chooses one of the two by the size of the tensor that `read` reads.
template <typename Read>
auto InterruptibleRead(const Tensor& x, Read read);
// Whether this is the thread on which Python runs signal handlers.
bool OnMainThread();
// Runs the handlers of signals that have come. Returns whether one raised an exception. This thread
// must not have the interpreter's lock; `*state` is its state, which changes.
bool SignalRaises(PyThreadState** state);
// Runs `work` on a thread of its own, without the interpreter's lock. If a signal's handler raises
// an exception, interrupts the waits of `work`. Returns whether one did, when `work` has ended.
bool RunOnOtherThread(const std::function<void()>& work);
// From this call on, only this thread takes the interpreter's lock after a wait. Any other thread
// is a daemon thread, which the end of the interpreter would stop at this point. CPython before
// 3.14 stops it by an exception that C++ functions can't let pass, so the thread sleeps instead.
void KeepOtherThreadsOut();
// Makes ops that wait, because the command queue is full, release the interpreter's lock.
void InstallWaitHooks();
// Sets the functions of TensordApi::set_wait_hooks (tensord_c.h). Thread-safe.
void SetWaitHooks(void* (*before)(), void (*after)(void* state));
// Returns with the lock, or sleeps until the process ends.
void TakeGil(PyThreadState* state);

// ---------------------------------------------------------------- tensors (tensor.cc)

// Returns the tensor of a Python Tensor; null for any other object.
const Tensor* TensorOrNull(PyObject* object);
Box* BoxOrNull(PyObject* object);
// Makes a Python Tensor. If `value` has failed, raises its error.
nb::object Wrap(Tensor value);
// Does the same for each tensor.
nb::list WrapAll(std::vector<Tensor> values);
// Reads a sequence of Python Tensors. `what` names it in messages.
std::vector<Tensor> ReadTensors(PyObject* object, const char* what);

// ---------------------------------------------------------------- arguments (arguments.cc)

// Reads a Python number. Returns false for any other object. Raises OverflowError for an integer
// that neither int64 nor uint64 holds.
bool ReadScalar(PyObject* object, Scalar* scalar);
// Returns whether the object is an array of NumPy, of the class numpy.ndarray or of one of NumPy's
// subclasses, such as numpy.memmap.
bool IsNumPyArray(PyObject* object);
int64_t ReadInt(PyObject* object, const char* what);
// Reads a sequence of ints, or one int.
std::vector<int64_t> ReadInts(PyObject* object, const char* what);
nb::tuple ToTuple(const Shape& shape);
// The length and the items, as borrowed references, of a list or a tuple. Python's macros for these
// aren't in its stable ABI.
inline Py_ssize_t LengthOf(PyObject* list_or_tuple) {
  return PyList_Check(list_or_tuple) ? PyList_Size(list_or_tuple) : PyTuple_Size(list_or_tuple);
}
inline PyObject* EntryOf(PyObject* list_or_tuple, Py_ssize_t i) {
  return PyList_Check(list_or_tuple) ? PyList_GetItem(list_or_tuple, i)
                                     : PyTuple_GetItem(list_or_tuple, i);
}
// Returns "int", "numpy.ndarray": the name of the object's type, for messages.
std::string TypeName(PyObject* object);

// ---------------------------------------------------------------- dtypes (dtypes.cc)

nb::object ToPython(DType dtype);
// Accepts a tensord dtype, a name, a NumPy dtype or scalar type, and the types bool, int and float.
DType ReadDType(PyObject* object);

// ---------------------------------------------------------------- devices (client.cc)

nb::object ToPython(const Device& device);
// Accepts a Device, the name of a device of the current connection, and None for the default
// device.
Device ReadDevice(PyObject* object);
Device DefaultDevice();
// Returns the devices of the current connection. If there is none, connects first.
std::vector<Device> AllDevices();

// ---------------------------------------------------------------- indexing (indexing.cc)

nb::object GetItem(const Tensor& x, PyObject* key);
void SetItem(Box& box, PyObject* key, PyObject* value);

// ---------------------------------------------------------------- host data (interchange.cc)

// Makes a tensor of a Tensor, a number, nested sequences, or an object with the buffer protocol,
// DLPack or __array__. `dtype` kUnspecified: the object's own.
Tensor FromPython(PyObject* object, DType dtype, const Device& device,
                  const TransferOptions& options = {});
// Reads the argument "progress" of a transfer: None, True for a progress bar, or a function that
// gets the bytes that are done and the total.
TransferOptions ReadProgress(nb::handle progress);

// ---------------------------------------------------------------- inline parts

template <typename Wait>
auto WithoutGil(Wait wait) {
  struct Release {
    PyThreadState* state = PyEval_SaveThread();
    ~Release() { TakeGil(state); }
  } release;
  return wait();
}

template <typename Wait>
auto Interruptible(Wait wait, const std::function<bool()>& stop) {
  if (!stop && !OnMainThread()) return WithoutGil(wait);
  bool raised = false;
  auto result = [&] {
    struct Release {
      PyThreadState* state = PyEval_SaveThread();
      ~Release() { TakeGil(state); }
    } release;
    internal::Interruption interruption([&] {
      raised = SignalRaises(&release.state);
      return raised || (stop && stop());
    });
    const internal::Interruption::Scope scope(&interruption);
    return wait();
  }();
  if (raised) throw nb::python_error();
  return result;
}

template <typename Wait>
auto InterruptibleCall(Wait wait) {
  if (!OnMainThread()) return WithoutGil(wait);
  std::optional<decltype(wait())> result;
  if (RunOnOtherThread([&] { result.emplace(wait()); })) throw nb::python_error();
  return *std::move(result);
}

template <typename Read>
auto InterruptibleRead(const Tensor& x, Read read) {
  return x.size_bytes() <= internal::kMaxGetElementsBytes ? Interruptible(read)
                                                          : InterruptibleCall(read);
}

template <typename Result, typename Body>
Result Guarded(Result failed, Body body) noexcept {
  try {
    return body();
  } catch (nb::python_error& e) {
    e.restore();
  } catch (nb::builtin_exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
  return failed;
}

}  // namespace tensord::python
