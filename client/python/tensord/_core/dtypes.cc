// dtypes: one Python object for each.
#include <array>

#include "absl/strings/str_cat.h"
#include "tensord/client/python/tensord/_core/core.h"

namespace tensord::python {
namespace {

struct DTypeObject {
  DType dtype;
};

// One object for each dtype, by number. Never destroyed.
std::array<PyObject*, kDTypeTableSize> objects{};

DType FindDType(absl::string_view name) {
  for (const DType dtype : kAllDTypes) {
    if (DTypeName(dtype) == name) return dtype;
  }
  std::string known;
  for (const DType dtype : kAllDTypes)
    absl::StrAppend(&known, known.empty() ? "" : ", ", DTypeName(dtype));
  RaiseTypeError(absl::StrCat("there is no dtype '", name, "'; the dtypes are ", known));
}

const char* KindName(DType dtype) {
  switch (KindOf(dtype)) {
    case DTypeKind::kBool:
      return "bool";
    case DTypeKind::kInteger:
      return IsUnsigned(dtype) ? "unsigned integer" : "signed integer";
    case DTypeKind::kFloating:
      return "real floating";
    case DTypeKind::kComplex:
      break;
  }
  return "complex floating";
}

}  // namespace

nb::object ToPython(DType dtype) {
  PyObject* const object = objects[static_cast<size_t>(dtype)];
  return object == nullptr ? nb::none() : nb::borrow(object);
}

DType ReadDType(PyObject* object) {
  DTypeObject* own = nullptr;
  if (nb::try_cast<DTypeObject*>(nb::handle(object), own, false)) return own->dtype;
  if (PyUnicode_Check(object)) return FindDType(nb::cast<const char*>(nb::handle(object)));
  if (object == reinterpret_cast<PyObject*>(&PyBool_Type)) return DType::kBool;
  if (object == reinterpret_cast<PyObject*>(&PyLong_Type)) return DType::kInt64;
  if (object == reinterpret_cast<PyObject*>(&PyFloat_Type)) return DType::kFloat64;
  // A NumPy dtype has a name. A scalar type, such as numpy.float32, is a class of this name.
  for (const char* attribute : {"name", "__name__"}) {
    const nb::object name = nb::getattr(nb::handle(object), attribute, nb::none());
    if (!PyUnicode_Check(name.ptr())) continue;
    std::string text = nb::cast<const char*>(name);
    if (text == "bool_") text = "bool";
    return FindDType(text);
  }
  RaiseTypeError(absl::StrCat("dtype must be a dtype or its name, not ", TypeName(object)));
}

void BindDTypes(nb::module_& m) {
  nb::class_<DTypeObject>(
      m, "dtype", nb::is_final(),
      "The type of a tensor's elements, such as tensord.float32. dtype(\"float32\") and\n"
      "dtype(numpy.float32) return the same object.")
      .def(nb::new_([](nb::handle like) { return ToPython(ReadDType(like.ptr())); }))
      .def_prop_ro(
          "name",
          [](const DTypeObject& d) {
            return nb::str(DTypeName(d.dtype).data(), DTypeName(d.dtype).size());
          },
          nb::sig("def name(self) -> str"))
      .def_prop_ro(
          "itemsize", [](const DTypeObject& d) { return SizeOf(d.dtype); },
          "The bytes of an element.")
      .def_prop_ro(
          "kind", [](const DTypeObject& d) { return KindName(d.dtype); },
          "\"bool\", \"signed integer\", \"unsigned integer\", \"real floating\" or \"complex "
          "floating\".")
      .def_prop_ro("is_floating_point", [](const DTypeObject& d) { return IsFloating(d.dtype); })
      .def(
          "__repr__",
          [](const DTypeObject& d) {
            return nb::str(absl::StrCat("tensord.", DTypeName(d.dtype)).c_str());
          },
          nb::sig("def __repr__(self) -> str"))
      .def(
          "__reduce__",
          [](nb::handle self) {
            const DType dtype = nb::cast<DTypeObject&>(self).dtype;
            return nb::make_tuple(self.type(),
                                  nb::make_tuple(nb::str(std::string(DTypeName(dtype)).c_str())));
          },
          nb::sig("def __reduce__(self) -> tuple[type[dtype], tuple[str]]"));
  for (const DType dtype : kAllDTypes) {
    nb::object object = nb::cast(DTypeObject{dtype});
    // A stub with the name "bool" would hide Python's type, so __init__.py defines tensord.bool.
    if (!IsBool(dtype)) m.attr(std::string(DTypeName(dtype)).c_str()) = object;
    objects[static_cast<size_t>(dtype)] = object.release().ptr();
  }
}

}  // namespace tensord::python
