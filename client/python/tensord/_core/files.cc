// Safetensors files.
#include <map>
#include <string>

#include "tensord/client/python/tensord/_core/core.h"
#include "tensord/client/safetensors.h"

namespace tensord::python {
namespace {

// Accepts str and os.PathLike.
std::string ReadPath(nb::handle path) {
  const nb::object text = nb::steal(PyOS_FSPath(path.ptr()));
  if (!text.is_valid()) throw nb::python_error();
  return nb::cast<std::string>(nb::str(text));
}

SafetensorsFile Open(nb::handle path) {
  const std::string name = ReadPath(path);
  return Unwrap(WithoutGil([&] { return SafetensorsFile::Open(name); }));
}

nb::dict LoadAll(const SafetensorsFile& file, nb::handle device, nb::handle progress) {
  const Device place = ReadDevice(device.ptr());
  const TransferOptions options = ReadProgress(progress);
  const auto tensors = Unwrap(InterruptibleCall([&] { return file.LoadAll(place, options); }));
  nb::dict result;
  for (const std::string& name : file.names()) result[name.c_str()] = Wrap(tensors.at(name));
  return result;
}

}  // namespace

void BindFiles(nb::module_& m) {
  nb::class_<SafetensorsFile>(
      m, "SafetensorsFile",
      "A safetensors file, mapped to memory: only the parts that are used are read.")
      .def(
          "__init__",
          [](SafetensorsFile* self, nb::handle path) { new (self) SafetensorsFile(Open(path)); },
          nb::sig("def __init__(self, path: str | os.PathLike[str], /) -> None"))
      .def(
          "keys", [](const SafetensorsFile& f) { return f.names(); }, "The names of the tensors.")
      .def(
          "__contains__",
          [](const SafetensorsFile& f, const std::string& name) { return f.contains(name); },
          nb::sig("def __contains__(self, name: object, /) -> bool"))
      .def("__len__", [](const SafetensorsFile& f) { return f.names().size(); })
      .def_prop_ro("metadata", [](const SafetensorsFile& f) { return f.metadata(); })
      .def(
          "spec",
          [](const SafetensorsFile& f, const std::string& name) {
            const TensorSpec spec = Unwrap(f.spec(name));
            return nb::make_tuple(ToTuple(spec.shape), ToPython(spec.dtype));
          },
          nb::arg("name"), nb::sig("def spec(self, name: str, /) -> tuple[tuple[int, ...], dtype]"),
          "Returns the shape and the dtype of a tensor, without reading it.")
      .def(
          "load",
          [](const SafetensorsFile& f, const std::string& name, nb::handle device,
             nb::handle progress) {
            const SafetensorsFile file = f;
            const Device place = ReadDevice(device.ptr());
            const TransferOptions options = ReadProgress(progress);
            return Wrap(Unwrap(InterruptibleCall([&] { return file.Load(place, name, options); })));
          },
          nb::arg("name"), nb::arg("device") = nb::none(), nb::kw_only(),
          nb::arg("progress") = nb::none(),
          nb::sig("def load(self, name: str, device: DeviceLike | None = None, *, progress: "
                  "Progress = None) -> "
                  "Tensor"),
          "Sends one tensor to a device.")
      .def(
          "load_all",
          [](const SafetensorsFile& f, nb::handle device, nb::handle progress) {
            return LoadAll(SafetensorsFile(f), device, progress);
          },
          nb::arg("device") = nb::none(), nb::kw_only(), nb::arg("progress") = nb::none(),
          nb::sig("def load_all(self, device: DeviceLike | None = None, *, progress: Progress = "
                  "None) -> dict[str, "
                  "Tensor]"),
          "Sends all tensors to a device.");
  m.def(
      "load_safetensors",
      [](nb::handle path, nb::handle device, nb::handle progress) {
        return LoadAll(Open(path), device, progress);
      },
      nb::arg("path"), nb::arg("device") = nb::none(), nb::kw_only(),
      nb::arg("progress") = nb::none(),
      nb::sig("def load_safetensors(path: str | os.PathLike[str], device: DeviceLike | None = "
              "None, *, progress: "
              "Progress = None) -> dict[str, Tensor]"),
      "Sends all tensors of a safetensors file to a device.\n\n"
      "progress: True for a progress bar (tqdm), or a function that gets the bytes that are done "
      "and the total.");
  m.def(
      "save_safetensors",
      [](const nb::dict& tensors, nb::handle path,
         const std::map<std::string, std::string>& metadata) {
        std::map<std::string, Tensor> values;
        for (const auto& [name, value] : tensors) {
          const Tensor* const tensor = TensorOrNull(value.ptr());
          if (tensor == nullptr)
            RaiseTypeError("tensors must be Tensors, not " + TypeName(value.ptr()));
          values[nb::cast<std::string>(name)] = *tensor;
        }
        const std::string file = ReadPath(path);
        RaiseIfError(InterruptibleCall([&] { return SaveSafetensors(file, values, metadata); }));
      },
      nb::arg("tensors"), nb::arg("path"),
      nb::arg("metadata") = std::map<std::string, std::string>(),
      nb::sig("def save_safetensors(tensors: dict[str, Tensor], path: str | os.PathLike[str], "
              "metadata: dict[str, "
              "str] = {}) -> None"),
      "Reads the tensors from their servers, and writes them to a safetensors file. After an error "
      "the file is\n"
      "unchanged.");
}

}  // namespace tensord::python
