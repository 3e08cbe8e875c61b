// The class Tensor: properties, conversions, text. operators.cc has the operators.

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/client/python/tensord/_core/core.h"
#include "tensord/client/python/tensord/_core/debug.h"
#include "tensord/client/python/tensord/_core/operators.h"

namespace tensord::python {
namespace {

PyTypeObject* tensor_type = nullptr;

struct Item {
  const Tensor& x;
  template <typename T>
  T Read() const {
    return Unwrap(Interruptible([this] { return x.Item<T>(); }));
  }
};

nb::object ItemOf(const Tensor& x) {
  if (x.num_elements() != 1) {
    RaiseValueError(
        absl::StrCat("only a tensor of one element has a value as a Python number; this one is ",
                     x.spec().ToString()));
  }
  const Item item{x};
  switch (KindOf(x.dtype())) {
    case DTypeKind::kBool:
      return nb::bool_(item.Read<bool>());
    case DTypeKind::kInteger:
      if (x.dtype() == DType::kUInt64) return nb::int_(item.Read<uint64_t>());
      return nb::int_(item.Read<int64_t>());
    case DTypeKind::kFloating:
      return nb::float_(item.Read<double>());
    case DTypeKind::kComplex:
      break;
  }
  std::complex<double> value;
  if (x.dtype() == DType::kComplex64) {
    value = item.Read<std::complex<float>>();
  } else {
    value = item.Read<std::complex<double>>();
  }
  return nb::steal(PyComplex_FromDoubles(value.real(), value.imag()));
}

nb::object ToComplex(const Tensor& x) {
  const nb::object item = ItemOf(x);
  if (PyComplex_Check(item.ptr())) return item;
  const nb::object real = nb::steal(PyNumber_Float(item.ptr()));
  if (!real.is_valid()) throw nb::python_error();
  return nb::steal(PyComplex_FromDoubles(PyFloat_AsDouble(real.ptr()), 0));
}

// A tensor without axes takes the formats of its number.
nb::object Format(nb::handle self, nb::handle format) {
  const Tensor x = nb::cast<Box&>(self).value;
  const bool is_number = x.rank() == 0 && PyObject_IsTrue(format.ptr()) == 1;
  const nb::object value = is_number ? ItemOf(x) : nb::str(self);
  const nb::object text = nb::steal(PyObject_Format(value.ptr(), format.ptr()));
  if (!text.is_valid()) throw nb::python_error();
  return text;
}

// x.to(device), x.to(dtype), x.to(device, dtype), and both by keyword.
nb::object To(nb::handle self, nb::args args, nb::kwargs kwargs) {
  const Tensor& x = nb::cast<Box&>(self).value;
  nb::object device = nb::none(), dtype = nb::none();
  const auto take = [](nb::object& slot, nb::handle value) {
    if (!slot.is_none()) RaiseTypeError("to() got two devices or two dtypes");
    slot = nb::borrow(value);
  };
  for (const nb::handle argument : args) {
    const bool is_name = PyUnicode_Check(argument.ptr());
    bool is_device = nb::isinstance<Device>(argument);
    if (is_name) {
      const absl::string_view name = nb::cast<const char*>(argument);
      is_device = true;
      for (const DType known : kAllDTypes) is_device = is_device && DTypeName(known) != name;
    }
    take(is_device ? device : dtype, argument);
  }
  for (const auto& [key, value] : kwargs) {
    const absl::string_view name = nb::cast<const char*>(key);
    if (value.is_none() || name == "copy" || name == "non_blocking") continue;
    if (name != "device" && name != "dtype")
      RaiseTypeError(absl::StrCat("to() has no argument '", name, "'"));
    take(name == "device" ? device : dtype, value);
  }
  Tensor result = x;
  if (!dtype.is_none()) result = result.To(ReadDType(dtype.ptr()));
  if (PyUnicode_Check(device.ptr())) {
    // A name without a server names a device of this tensor's server.
    result = result.To(absl::string_view(nb::cast<const char*>(device)));
  } else if (!device.is_none()) {
    result = result.To(ReadDevice(device.ptr()));
  }
  return result.IsSameAs(x) ? nb::borrow(self) : Wrap(std::move(result));
}

nb::object ToDevice(nb::handle self, nb::handle device, nb::handle stream) {
  if (!stream.is_none()) RaiseValueError("to_device(): a stream isn't supported");
  return nb::borrow(self.attr("to")(nb::arg("device") = device));
}

Tensor Transposed(const Tensor& x, bool matrix) {
  if (matrix && x.rank() < 2)
    RaiseValueError(absl::StrCat("mT needs two or more axes, and this tensor has ", x.rank()));
  if (matrix) return Transpose(x);
  std::vector<int64_t> axes(x.rank());
  for (int i = 0; i < x.rank(); ++i) axes[i] = x.rank() - 1 - i;
  return Permute(x, axes);
}

nb::bytes ReadBytes(const Tensor& x) {
  const std::vector<uint8_t> data =
      Unwrap<std::vector<uint8_t>>(InterruptibleRead(x, [&] { return x.ReadBytes(); }));
  return nb::bytes(data.data(), data.size());
}

}  // namespace

Box* BoxOrNull(PyObject* object) {
  if (Py_TYPE(object) != tensor_type && PyType_IsSubtype(Py_TYPE(object), tensor_type) == 0)
    return nullptr;
  return nb::inst_ptr<Box>(nb::handle(object));
}

const Tensor* TensorOrNull(PyObject* object) {
  Box* const box = BoxOrNull(object);
  return box == nullptr ? nullptr : &box->value;
}

nb::object Wrap(Tensor value) {
  if (!value.ok()) Raise(value.status());
  if (Debug().any()) {
    if (Debug().tracebacks) RememberLine(value);
    if (Debug().sync) RaiseIfError(Interruptible([&] { return value.Wait(); }));
  }
  nb::object object = nb::inst_alloc(nb::handle(reinterpret_cast<PyObject*>(tensor_type)));
  new (nb::inst_ptr<Box>(object)) Box{std::move(value)};
  nb::inst_mark_ready(object);
  return object;
}

nb::list WrapAll(std::vector<Tensor> values) {
  nb::list list;
  for (Tensor& value : values) list.append(Wrap(std::move(value)));
  return list;
}

std::vector<Tensor> ReadTensors(PyObject* object, const char* what) {
  if (TensorOrNull(object) != nullptr) {
    RaiseTypeError(absl::StrCat(what, " must be a sequence of Tensors, not a Tensor"));
  }
  const nb::object items = nb::steal(PySequence_Fast(object, "expected a sequence of Tensors"));
  if (!items.is_valid()) throw nb::python_error();
  std::vector<Tensor> tensors;
  for (Py_ssize_t i = 0; i < LengthOf(items.ptr()); ++i) {
    PyObject* const item = EntryOf(items.ptr(), i);
    const Tensor* const tensor = TensorOrNull(item);
    if (tensor == nullptr) {
      RaiseTypeError(absl::StrCat(what, "[", i, "] must be a Tensor, not ", TypeName(item)));
    }
    tensors.push_back(*tensor);
  }
  return tensors;
}

nb::object ReportOf(const Tensor& copy) {
  const CopyReport report = Unwrap(Interruptible([&] { return copy.copy_report(); }));
  nb::dict dict;
  dict["path"] = CopyPathName(report.path);
  dict["bytes"] = report.bytes;
  dict["transfer_seconds"] = absl::ToDoubleSeconds(report.transfer_time);
  dict["total_seconds"] = absl::ToDoubleSeconds(report.total_time);
  dict["bytes_per_second"] = report.bytes_per_second();
  dict["connections"] = report.connections;
  dict["resumptions"] = report.resumptions;
  dict["relay_reason"] = report.relay_reason;
  dict["route_skipped"] = report.route_skipped;
  return dict;
}

nb::class_<Box> BindTensor(nb::module_& m) {
  nb::class_<Box> tensor(m, "Tensor", nb::type_slots(TensorSlots()), nb::is_weak_referenceable(),
                         "A tensor on a device of a server.\n\n"
                         "Ops return at once, and the server computes the values later. These wait "
                         "for the values: item(), numpy(),\n"
                         "tolist(), wait(), bool(x), int(x), float(x), print(x). If the server "
                         "finds an error, they raise it.\n\n"
                         "Operators in place, and x[i] = v, give this object a new value. Other "
                         "tensors, slices of x among them, keep\n"
                         "theirs.");
  tensor_type = reinterpret_cast<PyTypeObject*>(tensor.ptr());
  tensor
      .def_prop_ro(
          "shape", [](const Box& x) { return ToTuple(x.value.shape()); },
          nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro(
          "dtype", [](const Box& x) { return ToPython(x.value.dtype()); },
          nb::sig("def dtype(self) -> dtype"))
      .def_prop_ro(
          "device", [](const Box& x) { return ToPython(x.value.device()); },
          nb::sig("def device(self) -> Device"))
      .def_prop_ro(
          "ndim", [](const Box& x) { return x.value.rank(); }, "The number of axes.")
      .def_prop_ro(
          "size", [](const Box& x) { return x.value.num_elements(); }, "The number of elements.")
      .def_prop_ro(
          "itemsize", [](const Box& x) { return SizeOf(x.value.dtype()); },
          "The bytes of an element.")
      .def_prop_ro(
          "nbytes", [](const Box& x) { return x.value.size_bytes(); }, "The bytes of all elements.")
      .def_prop_ro(
          "T", [](const Box& x) { return Wrap(Transposed(x.value, false)); },
          nb::sig("def T(self) -> Tensor"), "The tensor with its axes in reverse order.")
      .def_prop_ro(
          "mT", [](const Box& x) { return Wrap(Transposed(x.value, true)); },
          nb::sig("def mT(self) -> Tensor"), "The tensor with its last two axes exchanged.")
      .def(
          "numel", [](const Box& x) { return x.value.num_elements(); }, "The number of elements.")
      .def(
          "dim", [](const Box& x) { return x.value.rank(); }, "The number of axes.")
      .def(
          "item", [](const Box& x) { return ItemOf(Tensor(x.value)); },
          nb::sig("def item(self) -> bool | int | float | complex"),
          "Waits for the only element, and returns it as a Python number.")
      .def(
          "wait",
          [](const Box& x) {
            const Tensor value = x.value;
            RaiseIfError(Interruptible([&] { return value.Wait(); }));
          },
          "Waits until the device has computed this tensor. If that has failed, raises the error.")
      .def(
          "tobytes", [](const Box& x) { return ReadBytes(Tensor(x.value)); },
          "Waits for the elements, and returns them as bytes in row-major order.")
      .def("to", &To,
           nb::sig("def to(self, *args: DeviceLike | DTypeLike, device: DeviceLike | None = None, "
                   "dtype: DTypeLike | None = None) -> Tensor"),
           "Returns the tensor on a device, with a dtype, or both. If nothing changes, returns "
           "this object.")
      .def("to_device", &ToDevice, nb::arg("device"), nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::sig("def to_device(self, device: DeviceLike, /, *, stream: None = None) -> Tensor"),
           "The same as to(device), by the array API standard's name. stream must be None.")
      .def(
          "__array_namespace__",
          [](nb::handle, nb::handle api_version) {
            return nb::module_::import_("tensord.array_api").attr("_for_version")(api_version);
          },
          nb::kw_only(), nb::arg("api_version") = nb::none(),
          nb::sig("def __array_namespace__(self, /, *, api_version: str | None = None) -> Any"),
          "Returns tensord.array_api, the namespace of the array API standard.")
      .def(
          "describe", [](const Box& x) { return nb::str(x.value.Describe().c_str()); },
          nb::sig("def describe(self) -> str"),
          "Returns a line with the number, the dtype, the shape and the device. Doesn't wait.")
      .def(
          "copy_report", [](const Box& x) { return ReportOf(Tensor(x.value)); },
          nb::sig("def copy_report(self) -> dict[str, Any]"),
          "Waits for a copy that to(device) made, and returns its path and its speed.")
      .def(
          "__complex__", [](const Box& x) { return ToComplex(Tensor(x.value)); },
          nb::sig("def __complex__(self) -> complex"))
      .def("__format__", &Format, nb::sig("def __format__(self, format_spec: str, /) -> str"))
      .def(
          "_assign", [](Box& x, const Box& other) { Assign(x, other.value); },
          nb::sig("def _assign(self, other: Tensor, /) -> None"),
          "Gives this object the value of another tensor, also of another dtype or device.")
      .def(
          "__reduce__",
          [](const Box& x) {
            const Tensor value = x.value;
            return nb::make_tuple(
                nb::module_::import_("tensord._pickle").attr("restore"),
                nb::make_tuple(ReadBytes(value), ToPython(value.dtype()), ToTuple(value.shape()),
                               nb::str(value.device().name().c_str())));
          },
          nb::sig("def __reduce__(self) -> tuple[object, ...]"))
      .def(
          "__copy__", [](const Box& x) { return Wrap(x.value); },
          nb::sig("def __copy__(self) -> Tensor"))
      .def(
          "__deepcopy__", [](const Box& x, nb::handle) { return Wrap(x.value); },
          nb::sig("def __deepcopy__(self, memo: object, /) -> Tensor"))
      .def(
          "clone", [](const Box& x) { return Wrap(x.value); }, nb::sig("def clone(self) -> Tensor"),
          "Returns another object with this value. Operators in place on one don't change the "
          "other.");
  // PyTorch calls this for each of its functions that gets such a tensor.
  tensor.def_static(
      "__torch_function__",
      [](const nb::args& args, const nb::kwargs&) {
        const nb::object name =
            args.size() == 0 ? nb::none() : nb::getattr(args[0], "__name__", nb::none());
        RaiseTypeError(absl::StrCat(
            name.is_none() ? "a function" : nb::cast<std::string>(nb::str(name)),
            " of PyTorch got a tensord.Tensor; convert it with torch_tensord.as_torch(x), which "
            "shares the tensor on its device, or with torch.from_dlpack(x), which copies it to the "
            "CPU"));
      },
      nb::sig("def __torch_function__(*args: Any, **kwargs: Any) -> NoReturn"));
  tensor.attr("__array_ufunc__") = nb::none();  // NumPy's operators then call ours
  tensor.attr("__hash__") = nb::none();         // == compares elements
  return tensor;
}

}  // namespace tensord::python
