// The table of C functions of the package tensord, and its errors as exceptions of PyTorch.
#ifndef TENSORD_CLIENT_PYTHON_TORCH_TENSORD_CSRC_API_H_
#define TENSORD_CLIENT_PYTHON_TORCH_TENSORD_CSRC_API_H_

#include <ATen/core/Tensor.h>

#include <string>

#include "c_api.h"

namespace torch_tensord {

// The table. Throws if the Python package hasn't called SetApi.
const TensordApi& Api();
void SetApi(int64_t address);

// Throws the error, if `code` isn't 0, and releases it: OutOfMemoryError, AcceleratorError for a
// lost server, NotImplementedError, or else RuntimeError. `what` names the op.
void ThrowError(int code, TensordError* error, const char* what);
// `error` is a reference, so that it is read after the call that sets it.
inline void Check(int code, TensordError* const& error, const char* what) {
  if (C10_UNLIKELY(code != 0)) ThrowError(code, error, what);
}

// The devices of the connection, which are fixed at the first call. Connects, if needed. May block.
int NumDevices();
// Throws if there is no such device.
TensordDevice* DeviceAt(c10::DeviceIndex index);
// The number of devices. If the connection fails, returns 0, and a later call tries again.
int TryNumDevices() noexcept;
// True if the connection exists.
bool IsInitialized();
// True in a forked child of a process that had a connection.
bool InBadFork();

c10::DeviceIndex CurrentDevice();
void SetCurrentDevice(c10::DeviceIndex index);

// Throws if tensord has no such dtype, or only stores it.
int32_t ToServerDType(at::ScalarType dtype);
at::ScalarType ToTorchDType(int32_t dtype);

}  // namespace torch_tensord

#endif  // TENSORD_CLIENT_PYTHON_TORCH_TENSORD_CSRC_API_H_
