// Tensors of the Python package tensord and of PyTorch with the same value.
#include <torch/library.h>

#include <cstring>

#include "kernels.h"

namespace torch_tensord {
namespace {

int64_t Address(const void* pointer) { return reinterpret_cast<int64_t>(pointer); }

// Returns a reference to the tensor's value, which the caller releases.
int64_t HoldValue(const at::Tensor& tensor) {
  TORCH_CHECK(IsOurs(tensor), "expected a tensor on tensord, but it is on ", tensor.device());
  const Value value = Read(tensor);
  Api().retain(value->tensor);
  return Address(value->tensor);
}

bool IsDevice(const TensordDevice* a, const TensordDevice* b) {
  return std::strcmp(Api().device_name(a), Api().device_name(b)) == 0 &&
         std::strcmp(Api().device_server(a), Api().device_server(b)) == 0;
}

// Makes a tensor of a reference to a value.
at::Tensor TensorOfValue(int64_t address) {
  const Value value = c10::make_intrusive<Handle>(reinterpret_cast<TensordTensor*>(address));
  TensordDevice* device = nullptr;
  Api().device(value->tensor, &device);
  c10::DeviceIndex index = 0;
  const auto count = static_cast<c10::DeviceIndex>(NumDevices());
  while (index < count && !IsDevice(device, DeviceAt(index))) ++index;
  const std::string name = Api().device_name(device);
  Api().release_device(device);
  TORCH_CHECK(index < count, "tensord: the tensor is on ", name,
              ", which isn't a device of the connection that PyTorch uses");
  ToTorchDType(value->spec.dtype);
  return MakeTensor(value, index);
}

// Returns the address of a function of the table that makes or takes Python objects.
int64_t FunctionAddress(c10::string_view name) {
  if (name == "to_python") return Address(reinterpret_cast<const void*>(Api().to_python));
  if (name == "from_python") return Address(reinterpret_cast<const void*>(Api().from_python));
  TORCH_CHECK(false, "no function ", name);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(tensord, m) {
  m.def("_hold_value(Tensor tensor) -> int", HoldValue);
  m.def("_release_value(int value) -> ()",
        [](int64_t value) { Api().release(reinterpret_cast<TensordTensor*>(value)); });
  m.def("_tensor_of_value(int value) -> Tensor", TensorOfValue);
  m.def("_function_address(str name) -> int", FunctionAddress);
}

}  // namespace torch_tensord
