// Reads Python objects as arguments.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/python/tensord/_core/core.h"

namespace tensord::python {
namespace {

// Reads an int of Python, of any size.
Scalar ReadLong(PyObject* object) {
  int overflow = 0;
  const long long value =
      PyLong_AsLongLongAndOverflow(object, &overflow);  // NOLINT: CPython's type
  if (overflow == 0) {
    if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    return static_cast<int64_t>(value);
  }
  const unsigned long long large = PyLong_AsUnsignedLongLong(object);  // NOLINT: CPython's type
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return static_cast<uint64_t>(large);
}

bool IsOfNumPy(PyObject* object) { return absl::StartsWith(TypeName(object), "numpy."); }

// NumPy's scalars that aren't subclasses of Python's numbers. Arrays, which are sequences, aren't
// scalars: neither numpy.ndarray nor numpy.memmap or numpy.ma.MaskedArray.
bool IsNumPyScalar(PyObject* object) {
  return PyNumber_Check(object) != 0 && PySequence_Check(object) == 0 && IsOfNumPy(object);
}

}  // namespace

bool ReadScalar(PyObject* object, Scalar* scalar) {
  if (PyFloat_Check(object)) {
    *scalar = PyFloat_AsDouble(object);
    return true;
  }
  if (PyBool_Check(object)) {
    *scalar = object == Py_True;
    return true;
  }
  if (PyLong_Check(object)) {
    *scalar = ReadLong(object);
    return true;
  }
  if (!IsNumPyScalar(object)) return false;
  const std::string name = TypeName(object);
  if (name == "numpy.bool" || name == "numpy.bool_") {
    *scalar = PyObject_IsTrue(object) == 1;
  } else if (PyIndex_Check(object)) {
    *scalar = ReadLong(nb::steal(PyNumber_Index(object)).ptr());
  } else if (absl::StrContains(name, "complex")) {
    return false;
  } else {
    const nb::object real = nb::steal(PyNumber_Float(object));
    if (!real.is_valid()) throw nb::python_error();
    *scalar = PyFloat_AsDouble(real.ptr());
  }
  return true;
}

bool IsNumPyArray(PyObject* object) {
  return PyNumber_Check(object) != 0 && PySequence_Check(object) != 0 && IsOfNumPy(object);
}

int64_t ReadInt(PyObject* object, const char* what) {
  if (PyBool_Check(object) || !PyIndex_Check(object)) {
    RaiseTypeError(absl::StrCat(what, " must be int, not ", TypeName(object)));
  }
  const Py_ssize_t value = PyNumber_AsSsize_t(object, PyExc_OverflowError);
  if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return value;
}

std::vector<int64_t> ReadInts(PyObject* object, const char* what) {
  if (PyIndex_Check(object) && PySequence_Check(object) == 0) return {ReadInt(object, what)};
  if (PyUnicode_Check(object) || TensorOrNull(object) != nullptr) {
    RaiseTypeError(absl::StrCat(what, " must be ints, not ", TypeName(object)));
  }
  const nb::object items =
      nb::steal(PySequence_Fast(object, "expected an int or a sequence of ints"));
  if (!items.is_valid()) throw nb::python_error();
  std::vector<int64_t> values(LengthOf(items.ptr()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = ReadInt(EntryOf(items.ptr(), static_cast<Py_ssize_t>(i)), what);
  }
  return values;
}

nb::tuple ToTuple(const Shape& shape) {
  nb::tuple tuple = nb::steal<nb::tuple>(PyTuple_New(shape.rank()));
  for (int i = 0; i < shape.rank(); ++i) {
    PyTuple_SetItem(tuple.ptr(), i, PyLong_FromLongLong(shape.dim(i)));
  }
  return tuple;
}

std::string TypeName(PyObject* object) {
  const nb::handle type(reinterpret_cast<PyObject*>(Py_TYPE(object)));
  const auto name = nb::cast<std::string>(type.attr("__qualname__"));
  const auto module = nb::cast<std::string>(nb::str(type.attr("__module__")));
  const bool is_known =
      module == "builtins" || module == "__main__" || absl::StartsWith(module, "tensord");
  return is_known ? name : absl::StrCat(module, ".", name);
}

}  // namespace tensord::python
