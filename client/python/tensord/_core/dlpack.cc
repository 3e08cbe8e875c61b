// Arrays by DLPack, from and to other libraries.
#include "tensord/client/python/tensord/_core/dlpack.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/python/tensord/_core/host_array.h"

namespace tensord::python {
namespace {

DType DTypeOf(const dlpack::DataType& type) {
  for (const DType dtype : kAllDTypes) {
    const uint8_t code = IsBool(dtype)               ? dlpack::kBool
                         : IsComplex(dtype)          ? dlpack::kComplex
                         : dtype == DType::kBFloat16 ? dlpack::kBFloat
                         : IsFloating(dtype)         ? dlpack::kFloat
                         : IsUnsigned(dtype)         ? dlpack::kUInt
                                                     : dlpack::kInt;
    if (type.lanes == 1 && type.code == code && type.bits == 8 * SizeOf(dtype)) return dtype;
  }
  RaiseTypeError(absl::StrCat("tensord has no dtype for DLPack's type code ", int{type.code},
                              " with ", int{type.bits}, " bits"));
}

dlpack::DataType DataTypeOf(DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * SizeOf(dtype));
  if (IsBool(dtype)) return {dlpack::kBool, bits, 1};
  if (IsComplex(dtype)) return {dlpack::kComplex, bits, 1};
  if (dtype == DType::kBFloat16) return {dlpack::kBFloat, bits, 1};
  if (IsFloating(dtype)) return {dlpack::kFloat, bits, 1};
  return {IsUnsigned(dtype) ? dlpack::kUInt : dlpack::kInt, bits, 1};
}

// The memory and the dimensions of an exported array.
struct Export {
  std::unique_ptr<uint8_t[]> data;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;

  dlpack::Array array(DType dtype) {
    return {data.get(),
            {dlpack::kCpu, 0},
            static_cast<int32_t>(shape.size()),
            DataTypeOf(dtype),
            shape.data(),
            strides.data(),
            0};
  }
};

template <typename Struct>
void DeleteExport(Struct* exported) {
  delete static_cast<Export*>(exported->context);
  delete exported;
}

// Runs if the capsule was not consumed.
template <typename Struct>
void DeleteCapsule(PyObject* capsule, const char* name) {
  if (PyCapsule_IsValid(capsule, name) == 0) return;  // the consumer has renamed it
  auto* const exported = static_cast<Struct*>(PyCapsule_GetPointer(capsule, name));
  exported->deleter(exported);
}

constexpr char kManagedName[] = "dltensor";
constexpr char kVersionedName[] = "dltensor_versioned";

[[noreturn]] void RaiseBufferError(const char* message) {
  PyErr_SetString(PyExc_BufferError, message);
  throw nb::python_error();
}

nb::object ToDlpack(const Box& box, nb::handle stream, nb::handle max_version, nb::handle dl_device,
                    nb::handle copy) {
  const Tensor x = box.value;
  if (!stream.is_none()) RaiseValueError("stream must be None: the export is in host memory");
  if (!dl_device.is_none() && !nb::make_tuple(int{dlpack::kCpu}, 0).equal(dl_device)) {
    RaiseBufferError(
        "a tensor of a server can be exported only to host memory: dl_device must be (1, 0) or "
        "None");
  }
  if (copy.ptr() == Py_False) {
    RaiseBufferError(
        "a tensor of a server can be exported only as a copy, and copy=False forbids one");
  }
  auto exported = std::make_unique<Export>();
  exported->data = std::unique_ptr<uint8_t[]>(
      new uint8_t[static_cast<size_t>(std::max<int64_t>(x.size_bytes(), 1))]);
  exported->shape.assign(x.shape().dims().begin(), x.shape().dims().end());
  const Dims strides = RowMajorStrides(x.shape());
  exported->strides.assign(strides.begin(), strides.end());
  ReadInto(x, exported->data.get());
  const bool versioned = !max_version.is_none() && nb::cast<int>(max_version[0]) >= 1;
  PyObject* capsule = nullptr;
  Export* const kept = exported.release();
  if (versioned) {
    auto* const result = new dlpack::Versioned{
        dlpack::kMajorVersion,           dlpack::kMinorVersion, kept,
        DeleteExport<dlpack::Versioned>, dlpack::kIsCopied,     kept->array(x.dtype())};
    capsule = PyCapsule_New(result, kVersionedName, [](PyObject* c) {
      DeleteCapsule<dlpack::Versioned>(c, kVersionedName);
    });
  } else {
    auto* const result =
        new dlpack::Managed{kept->array(x.dtype()), kept, DeleteExport<dlpack::Managed>};
    capsule = PyCapsule_New(result, kManagedName,
                            [](PyObject* c) { DeleteCapsule<dlpack::Managed>(c, kManagedName); });
  }
  if (capsule == nullptr) throw nb::python_error();
  return nb::steal(capsule);
}

// Uploads the array of a capsule, and marks the capsule as consumed.
template <typename Struct>
Tensor FromCapsule(const nb::object& capsule, const char* name, const char* used_name,
                   const Device& device) {
  auto* const exported = static_cast<Struct*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (exported == nullptr) throw nb::python_error();
  const dlpack::Array& array = exported->array;
  if (array.device.type != dlpack::kCpu && array.device.type != dlpack::kCudaHost) {
    RaiseBufferError("the array isn't in host memory: copy it there first, such as with x.cpu()");
  }
  HostArray host{
      static_cast<const uint8_t*>(array.data) + array.byte_offset, DTypeOf(array.dtype), {}, {}};
  host.shape.assign(array.shape, array.shape + array.ndim);
  for (int i = 0; array.strides != nullptr && i < array.ndim; ++i) {
    host.strides.push_back(array.strides[i] * SizeOf(host.dtype));
  }
  const Tensor result = Upload(host, device);
  if (PyCapsule_SetName(capsule.ptr(), used_name) != 0) throw nb::python_error();
  if (exported->deleter != nullptr) exported->deleter(exported);
  return result;
}

}  // namespace

Tensor FromDlpack(nb::handle object, const Device& device) {
  nb::object capsule;
  try {
    capsule = object.attr("__dlpack__")(
        nb::arg("max_version") = nb::make_tuple(dlpack::kMajorVersion, dlpack::kMinorVersion));
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_TypeError)) throw;
    capsule = object.attr("__dlpack__")();  // a library from before DLPack 1.0
  }
  if (PyCapsule_IsValid(capsule.ptr(), kVersionedName) != 0) {
    return FromCapsule<dlpack::Versioned>(capsule, kVersionedName, "used_dltensor_versioned",
                                          device);
  }
  return FromCapsule<dlpack::Managed>(capsule, kManagedName, "used_dltensor", device);
}

void BindDlpack(nb::module_& m, nb::class_<Box>& tensor) {
  tensor
      .def(
          "__dlpack_device__", [](const Box&) { return nb::make_tuple(int{dlpack::kCpu}, 0); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def(
          "__dlpack__", &ToDlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
          nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(),
          nb::arg("copy") = nb::none(),
          nb::sig("def __dlpack__(self, *, stream: object = None, max_version: tuple[int, int] | "
                  "None = None, "
                  "dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> object"));
  m.def(
      "from_dlpack",
      [](nb::handle x, nb::handle device, nb::handle copy) {
        if (const Tensor* own = TensorOrNull(x.ptr()); own != nullptr) {
          if (device.is_none() || ReadDevice(device.ptr()) == own->device()) return nb::borrow(x);
        }
        if (copy.ptr() == Py_False) {
          PyErr_SetString(
              PyExc_BufferError,
              "the array must be copied to a device of a server, and copy=False forbids it");
          throw nb::python_error();
        }
        if (const Tensor* own = TensorOrNull(x.ptr()))
          return Wrap(own->To(ReadDevice(device.ptr())));
        return Wrap(FromDlpack(x, ReadDevice(device.ptr())));
      },
      nb::arg("x"), nb::kw_only(), nb::arg("device") = nb::none(), nb::arg("copy") = nb::none(),
      nb::sig("def from_dlpack(x: Any, /, *, device: DeviceLike | None = None, copy: bool | None = "
              "None) -> Tensor"),
      "Makes a tensor of an array in host memory that supports DLPack, on a device or the default "
      "device.\n"
      "Returns a Tensor that is on the device as it is.");
}

}  // namespace tensord::python
