// Elements to and from the memory of other libraries: NumPy, the buffer protocol, sequences.
#include <cmath>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/creation.h"
#include "tensord/client/indexing.h"
#include "tensord/client/python/tensord/_core/host_array.h"

namespace tensord::python {
namespace {

// ---------------------------------------------------------------- the buffer protocol

// Returns the dtype of a format of the struct module; kUnspecified for any that tensord lacks.
DType DTypeOfFormat(const char* format, int64_t size) {
  if (format == nullptr) return DType::kUInt8;
  absl::string_view text = format;
  if (!text.empty() && (text[0] == '<' || text[0] == '=' || text[0] == '@')) text.remove_prefix(1);
  if (text == "Zf") return DType::kComplex64;
  if (text == "Zd") return DType::kComplex128;
  if (text.size() != 1) return DType::kUnspecified;
  constexpr absl::string_view kSigned = "bhilqn", kUnsigned = "BHILQN";
  const auto by_size = [size](DType one, DType two, DType four, DType eight) {
    return size == 1 ? one : size == 2 ? two : size == 4 ? four : eight;
  };
  if (text[0] == '?') return DType::kBool;
  if (kSigned.find(text[0]) != absl::string_view::npos) {
    return by_size(DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64);
  }
  if (kUnsigned.find(text[0]) != absl::string_view::npos) {
    return by_size(DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64);
  }
  if (text[0] == 'e') return DType::kFloat16;
  if (text[0] == 'f') return DType::kFloat32;
  if (text[0] == 'd') return DType::kFloat64;
  return DType::kUnspecified;
}

class Buffer {
 public:
  // Returns false if the object has no buffer of a dtype that tensord has.
  bool Open(PyObject* object) {
    if (PyObject_GetBuffer(object, &view_, PyBUF_RECORDS_RO) != 0) {
      PyErr_Clear();
      return false;
    }
    open_ = true;
    return DTypeOfFormat(view_.format, view_.itemsize) != DType::kUnspecified;
  }
  ~Buffer() {
    if (open_) PyBuffer_Release(&view_);
  }

  HostArray array() const {
    HostArray array{static_cast<const uint8_t*>(view_.buf),
                    DTypeOfFormat(view_.format, view_.itemsize),
                    {},
                    {}};
    array.shape.assign(view_.shape, view_.shape + view_.ndim);
    if (view_.strides != nullptr) array.strides.assign(view_.strides, view_.strides + view_.ndim);
    return array;
  }

 private:
  Py_buffer view_{};
  bool open_ = false;
};

// ---------------------------------------------------------------- sequences of numbers

// Collects the numbers of nested lists and tuples.
class SequenceReader {
 public:
  // Returns false if an element isn't a number of Python or NumPy.
  bool Read(PyObject* object, size_t depth = 0) {
    Scalar scalar = false;
    if (!PyList_Check(object) && !PyTuple_Check(object)) {
      if (PyComplex_Check(object) || !ReadScalar(object, &scalar)) return false;
      if (depth != rank_ && rank_known_) RaiseUneven();
      rank_ = depth;
      rank_known_ = true;
      kind_ = std::max(kind_, scalar.is_bool() ? 1 : scalar.is_int() ? 2 : 3);
      has_large_ = has_large_ || scalar.is_large();
      values_.push_back(scalar);
      return true;
    }
    const Py_ssize_t length = LengthOf(object);
    if (shape_.size() == depth) {
      if (rank_known_ && depth >= rank_) RaiseUneven();
      shape_.resize(depth + 1, length);  // GCC 12 warns of push_back here, by mistake
    }
    if (shape_[depth] != length) RaiseUneven();
    for (Py_ssize_t i = 0; i < length; ++i) {
      if (!Read(EntryOf(object, i), depth + 1)) return false;
    }
    return true;
  }

  Tensor Make(DType dtype, const Device& device) const {
    if (dtype == DType::kUnspecified) {
      dtype = kind_ == 1   ? DType::kBool
              : kind_ == 2 ? (has_large_ ? DType::kUInt64 : DType::kInt64)
                           : DType::kFloat32;
    }
    // A float dtype rounds the numbers once. An integer dtype refuses those that it can't hold.
    if (IsFloating(dtype)) return MakeOf<double>(DType::kFloat64, dtype, device);
    if (IsComplex(dtype)) RaiseTypeError("make a complex tensor from a NumPy array");
    if (IsBool(dtype)) {
      std::vector<uint8_t> bytes;
      for (const Scalar& value : values_) {
        bytes.push_back(std::visit([](auto v) { return v != 0; }, value.value()));
      }
      return Send(bytes, DType::kBool, device);
    }
    return WithElementType(dtype, [&](auto element) -> Tensor {
      using T = decltype(element);
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
        std::vector<T> elements(values_.size());
        for (size_t i = 0; i < values_.size(); ++i) elements[i] = ToInteger<T>(values_[i], dtype);
        return Send(elements, dtype, device);
      } else {
        return Tensor();  // not reached
      }
    });
  }

 private:
  [[noreturn]] static void RaiseUneven() {
    RaiseValueError("nested sequences must have the same length at each level");
  }

  template <typename T>
  static T ToInteger(const Scalar& scalar, DType dtype) {
    return std::visit(
        [dtype](auto value) -> T {
          const auto result = static_cast<T>(value);
          if constexpr (std::is_same_v<decltype(value), double>) {
            if (value >= -0x1p63 && value < 0x1p64 &&
                static_cast<double>(result) == std::trunc(value))
              return result;
          } else if (std::cmp_equal(int64_or_uint64(result), int64_or_uint64(value))) {
            return result;
          }
          RaiseValueError(absl::StrCat(value, " doesn't fit ", DTypeName(dtype)));
        },
        scalar.value());
  }
  // std::cmp_equal doesn't take bool.
  template <typename T>
  static auto int64_or_uint64(T value) {
    if constexpr (std::is_same_v<T, uint64_t>) {
      return value;
    } else {
      return static_cast<int64_t>(value);
    }
  }

  template <typename T>
  Tensor Send(const std::vector<T>& elements, DType dtype, const Device& device) const {
    return Upload({reinterpret_cast<const uint8_t*>(elements.data()), dtype, shape_, {}}, device);
  }

  template <typename T>
  Tensor MakeOf(DType element, DType dtype, const Device& device) const {
    std::vector<T> elements;
    elements.reserve(values_.size());
    for (const Scalar& value : values_) {
      elements.push_back(std::visit([](auto v) { return static_cast<T>(v); }, value.value()));
    }
    if (dtype == DType::kFloat32) {
      const std::vector<float> narrow(elements.begin(), elements.end());
      return Send(narrow, dtype, device);
    }
    const Tensor wide = Send(elements, element, device);
    return dtype == element ? wide : wide.To(dtype);
  }

  std::vector<Scalar> values_;
  std::vector<int64_t> shape_;
  size_t rank_ = 0;
  bool rank_known_ = false;
  int kind_ = 0;  // 1: bool, 2: int, 3: float; 0: no element
  bool has_large_ = false;
};

Tensor FromHostArray(PyObject* object, const Device& device, bool* known,
                     const TransferOptions& options) {
  *known = true;
  const std::string type = TypeName(object);
  // NumPy exports the buffer of such an object as plain bytes, which aren't its value.
  const bool is_time = type == "numpy.datetime64" || type == "numpy.timedelta64";
  if (Buffer buffer; !is_time && PyObject_CheckBuffer(object) && buffer.Open(object))
    return Upload(buffer.array(), device, options);
  // If an array of NumPy has no buffer format, NumPy can't export it by DLPack either.
  const bool is_numpy = type == "numpy.ndarray";
  if (!is_numpy && PyObject_HasAttrString(object, "__dlpack__") == 1)
    return FromDlpack(object, device);
  *known = false;
  return {};
}

// For lists of arrays, complex numbers, and objects with __array__: NumPy makes an array of them.
Tensor FromNumPy(PyObject* object, const Device& device, const TransferOptions& options) {
  nb::object array = nb::module_::import_("numpy").attr("asarray")(nb::handle(object));
  nb::object dtype = array.attr("dtype");
  const bool is_bfloat16 = nb::str("bfloat16").equal(dtype.attr("name"));  // of ml_dtypes
  array = is_bfloat16
              ? array.attr("view")("uint16")
              : array.attr("astype")(dtype.attr("newbyteorder")("="), nb::arg("copy") = false);
  bool known = false;
  const Tensor tensor = FromHostArray(array.ptr(), device, &known, options);
  if (!known) {
    RaiseTypeError(absl::StrCat("tensord has no dtype for elements of NumPy's dtype ",
                                nb::cast<const char*>(nb::str(dtype))));
  }
  return is_bfloat16 ? Bitcast(tensor, DType::kBFloat16) : tensor;
}

// ---------------------------------------------------------------- NumPy

// Returns NumPy's dtype for the elements of x.
nb::object NumPyDType(const Tensor& x) {
  if (x.dtype() != DType::kBFloat16) {
    const std::string name(DTypeName(x.dtype()));
    return nb::module_::import_("numpy").attr("dtype")(name.c_str());
  }
  try {
    return nb::module_::import_("numpy").attr("dtype")(
        nb::module_::import_("ml_dtypes").attr("bfloat16"));
  } catch (nb::python_error&) {
    RaiseTypeError(
        "NumPy has no bfloat16: install ml_dtypes, or convert with x.to(tensord.float32)");
  }
}

// Raises an error unless `out` is an array that can take the elements of x.
void CheckOut(const Tensor& x, nb::handle out, const nb::object& dtype) {
  if (!nb::isinstance(out, nb::module_::import_("numpy").attr("ndarray"))) {
    RaiseTypeError(absl::StrCat("out must be a NumPy array, not ", TypeName(out.ptr())));
  }
  const auto text = [](nb::handle value) { return nb::cast<std::string>(nb::str(value)); };
  if (!dtype.equal(out.attr("dtype"))) {
    RaiseValueError(absl::StrCat("out has the dtype ", text(out.attr("dtype")),
                                 ", and the tensor has ", text(dtype)));
  }
  if (const nb::tuple shape = ToTuple(x.shape()); !shape.equal(out.attr("shape"))) {
    RaiseValueError(absl::StrCat("out has the shape ", text(out.attr("shape")),
                                 ", and the tensor has ", text(shape)));
  }
  const nb::object flags = out.attr("flags");
  if (!nb::cast<bool>(flags.attr("c_contiguous"))) {
    RaiseValueError("out must be contiguous and row-major: numpy.empty makes such an array");
  }
  if (!nb::cast<bool>(flags.attr("writeable"))) RaiseValueError("out is read-only");
}

// Reads x into `out`, or into a new array if it is None. Returns the array.
nb::object ToNumPy(const Tensor& x, const TransferOptions& options = {},
                   nb::handle out = nb::none()) {
  const nb::object dtype = NumPyDType(x);
  if (!out.is_none()) CheckOut(x, out, dtype);
  nb::object array = out.is_none()
                         ? nb::module_::import_("numpy").attr("empty")(ToTuple(x.shape()), dtype)
                         : nb::borrow(out);
  // ml_dtypes' arrays have no buffer format, but their bytes have one.
  nb::object bytes = array.attr("reshape")(-1).attr("view")("uint8");
  Py_buffer view;
  if (PyObject_GetBuffer(bytes.ptr(), &view, PyBUF_WRITABLE) != 0) throw nb::python_error();
  const std::unique_ptr<Py_buffer, decltype(&PyBuffer_Release)> release(&view, PyBuffer_Release);
  if (x.num_elements() > 0) ReadInto(x, view.buf, options);
  return array;
}

nb::object ToArray(const Box& box, nb::handle dtype, nb::handle copy) {
  if (copy.ptr() == Py_False)
    RaiseValueError("a tensor of a server becomes an array only by a copy; copy=False forbids it");
  const Tensor x = box.value;
  nb::object array = ToNumPy(x);
  return dtype.is_none() ? array : array.attr("astype")(dtype, nb::arg("copy") = false);
}

// Returns a float for float32 rounded, as in a list of floats: one that is too large becomes
// infinite. The op full would refuse it.
Scalar RoundToFloat32(Scalar scalar, DType dtype) {
  if (!scalar.is_float() || (dtype != DType::kUnspecified && dtype != DType::kFloat32)) {
    return scalar;
  }
  return Scalar(static_cast<float>(std::get<double>(scalar.value())));
}

}  // namespace

TransferOptions ReadProgress(nb::handle progress) {
  if (!progress.is_valid() || progress.is_none() || progress.ptr() == Py_False) return {};
  nb::object report = progress.ptr() == Py_True
                          ? nb::module_::import_("tensord._progress").attr("bar")()
                          : nb::borrow(progress);
  if (PyCallable_Check(report.ptr()) == 0)
    RaiseTypeError("progress must be a bool or a function of two numbers");
  // The library may destroy the function without the interpreter's lock.
  const std::shared_ptr<nb::object> kept(new nb::object(std::move(report)),
                                         [](nb::object* function) {
                                           nb::gil_scoped_acquire gil;
                                           delete function;
                                         });
  return {.progress = [kept](int64_t done, int64_t total) {
    nb::gil_scoped_acquire gil;
    try {
      (*kept)(done, total);
    } catch (nb::python_error& e) {
      e.discard_as_unraisable("the function `progress` of a transfer");
    }
  }};
}

Tensor FromPython(PyObject* object, DType dtype, const Device& device,
                  const TransferOptions& options) {
  Scalar scalar = false;
  if (const Tensor* tensor = TensorOrNull(object)) {
    const Tensor moved = tensor->To(device);
    return dtype == DType::kUnspecified ? moved : moved.To(dtype);
  }
  const auto convert = [dtype](const Tensor& x) {
    return dtype == DType::kUnspecified ? x : x.To(dtype);
  };
  const bool is_python = PyObject_CheckBuffer(object) == 0;  // NumPy's scalars have a buffer
  if (is_python && !PyComplex_Check(object) && ReadScalar(object, &scalar)) {
    scalar = RoundToFloat32(scalar, dtype);
    if (dtype == DType::kUnspecified) return FromScalar(device, scalar);
    return FromScalar(device, scalar, {.dtype = dtype});
  }
  bool known = false;
  const Tensor uploaded = FromHostArray(object, device, &known, options);
  if (known) return convert(uploaded);
  if (PyList_Check(object) || PyTuple_Check(object)) {
    if (SequenceReader reader; reader.Read(object)) return reader.Make(dtype, device);
    return convert(FromNumPy(object, device, options));
  }
  if (PyComplex_Check(object) || PyObject_HasAttrString(object, "__array__") == 1) {
    return convert(FromNumPy(object, device, options));
  }
  if (PySequence_Check(object) != 0 && PyUnicode_Check(object) == 0) {
    const nb::object list = nb::steal(PySequence_List(object));
    if (!list.is_valid()) throw nb::python_error();
    return FromPython(list.ptr(), dtype, device, options);
  }
  RaiseTypeError(absl::StrCat("can't make a tensor of ", TypeName(object),
                              ": give numbers, nested sequences of numbers, or an array"));
}

void BindInterchange(nb::module_& m, nb::class_<Box>& tensor) {
  tensor
      .def(
          "numpy",
          [](const Box& x, nb::handle progress, nb::handle out) {
            return ToNumPy(Tensor(x.value), ReadProgress(progress), out);
          },
          nb::kw_only(), nb::arg("progress") = nb::none(), nb::arg("out") = nb::none(),
          nb::sig("def numpy(self, *, progress: Progress = None, out: NDArray[Any] | None = None) "
                  "-> NDArray[Any]"),
          "Waits for the elements, and returns them as a NumPy array.\n\n"
          "progress: True for a progress bar (tqdm), or a function that gets the bytes that are "
          "done and the total.\n"
          "out: an array with the tensor's shape and dtype, contiguous, which gets the elements "
          "and is returned. A program\n"
          "that reads often saves the time in which the system makes the pages of a new array. "
          "After an error the elements\n"
          "are undefined.")
      .def(
          "anumpy",
          [](nb::handle x) { return nb::module_::import_("tensord.aio").attr("numpy")(x); },
          nb::sig("def anumpy(self) -> Coroutine[Any, Any, NDArray[Any]]"),
          "await x.anumpy() waits for the elements, while other tasks of the event loop run.")
      .def(
          "tolist",
          [](const Box& x) {
            const bool is_bfloat16 = x.value.dtype() == DType::kBFloat16;
            return ToNumPy(is_bfloat16 ? x.value.To(DType::kFloat32) : Tensor(x.value))
                .attr("tolist")();
          },
          nb::sig("def tolist(self) -> Any"),
          "Waits for the elements, and returns them as nested lists of Python numbers; without "
          "axes, as one number.")
      .def("__array__", &ToArray, nb::arg("dtype") = nb::none(), nb::kw_only(),
           nb::arg("copy") = nb::none(),
           nb::sig("def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> "
                   "NDArray[Any]"));
  m.def(
      "_from_bytes",
      [](const nb::bytes& data, nb::handle dtype, nb::handle shape, const Device& device) {
        HostArray array{static_cast<const uint8_t*>(data.data()),
                        ReadDType(dtype.ptr()),
                        ReadInts(shape.ptr(), "shape"),
                        {}};
        if (array.num_elements() * SizeOf(array.dtype) != static_cast<int64_t>(data.size())) {
          RaiseValueError("the bytes don't fit the dtype and the shape");
        }
        return Wrap(Upload(array, device));
      },
      nb::sig("def _from_bytes(data: bytes, dtype: dtype, shape: tuple[int, ...], device: Device) "
              "-> Tensor"));
}

}  // namespace tensord::python
