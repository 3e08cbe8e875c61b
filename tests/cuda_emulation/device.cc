// Devices: their properties, contexts and errors.
#include "tensord/tests/cuda_emulation/device.h"

#include <array>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "tensord/tests/cuda_emulation/failure.h"
#include "tensord/tests/cuda_emulation/host_memory.h"
#include "tensord/tests/cuda_emulation/stream.h"

namespace tensord::cuda_emulation {
namespace {

constexpr int kComputeCapabilityMajor = 9, kComputeCapabilityMinor = 0;

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

bool Exists(int device) { return device >= 0 && device < TheOptions().devices; }

}  // namespace

Device& DeviceAt(int index) {
  static auto* devices = new std::array<Device, kMaxDevices>;  // never destroyed
  return devices->at(static_cast<size_t>(index));
}

int CurrentDevice() { return current_device; }

cudaError_t RecordError(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t StickyError(int device) {
  Device& d = DeviceAt(device);
  MutexLock lock(&d.mu);
  return d.sticky_error;
}

void SetStickyError(int device, cudaError_t error) {
  Device& d = DeviceAt(device);
  MutexLock lock(&d.mu);
  if (d.sticky_error == cudaSuccess) d.sticky_error = error;
}

bool IsSticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
      return true;
    default:
      return false;
  }
}

cudaError_t UseContext(int device, const char* call) {
  CountRuntimeCall();
  if (!Exists(device)) return RecordError(cudaErrorNoDevice);
  if (const auto injected = static_cast<cudaError_t>(CountCall(call)); injected != cudaSuccess) {
    if (IsSticky(injected)) SetStickyError(device, injected);
    return RecordError(injected);
  }
  Device& d = DeviceAt(device);
  MutexLock lock(&d.mu);
  d.has_context = true;
  return RecordError(d.sticky_error);
}

bool HasContext(int device) {
  Device& d = DeviceAt(device);
  MutexLock lock(&d.mu);
  return d.has_context;
}

std::string LiveObjects() {
  int64_t bytes = 0;
  for (int device = 0; device < kMaxDevices; ++device) bytes += UsedBytes(device);
  const struct {
    int64_t count;
    const char* kind;
  } counts[] = {{static_cast<int64_t>(LiveStreams()), "streams"},
                {static_cast<int64_t>(LiveEvents()), "events"},
                {static_cast<int64_t>(LiveGraphs()), "graphs"},
                {static_cast<int64_t>(LiveLibraries()), "libraries"},
                {static_cast<int64_t>(LiveBlasHandles()), "handles of cuBLASLt"},
                {static_cast<int64_t>(LiveDnnHandles()), "handles of cuDNN"},
                {static_cast<int64_t>(LiveDnnDescriptors()), "descriptors of cuDNN"},
                {static_cast<int64_t>(LivePools()), "pools"},
                {static_cast<int64_t>(LivePinnedAllocations()), "allocations of pinned memory"},
                {bytes, "bytes of device memory"}};
  std::string text;
  for (const auto& [count, kind] : counts) {
    if (count > 0) absl::StrAppend(&text, text.empty() ? "" : ", ", count, " ", kind);
  }
  return text;
}

}  // namespace tensord::cuda_emulation

using namespace tensord;                  // NOLINT(google-build-using-namespace)
using namespace tensord::cuda_emulation;  // NOLINT(google-build-using-namespace)

// The first statement of a function that needs no context. If an error is injected, returns it from
// the function.
#define TENSORD_EMULATION_ENTER_WITHOUT_CONTEXT()                                  \
  if (const auto tensord_injected = static_cast<cudaError_t>(CountCall(__func__)); \
      tensord_injected != cudaSuccess)                                             \
  return RecordError(tensord_injected)

extern "C" {

cudaError_t cudaGetLastError() {
  CountRuntimeCall();
  const cudaError_t sticky = StickyError(current_device);
  const cudaError_t error = sticky != cudaSuccess ? sticky : last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaGetDeviceCount(int* count) {
  TENSORD_EMULATION_ENTER_WITHOUT_CONTEXT();
  *count = TheOptions().devices;
  return RecordError(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaDriverGetVersion(int* version) {
  TENSORD_EMULATION_ENTER_WITHOUT_CONTEXT();
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  CountRuntimeCall();
  *device = current_device;
  return cudaSuccess;
}

// Creates the context, as CUDA does since version 12.
cudaError_t cudaSetDevice(int device) {
  if (!Exists(device)) return RecordError(cudaErrorInvalidDevice);
  const cudaError_t error = UseContext(device, __func__);
  // A context with a sticky error can be made current.
  if (error == cudaSuccess || error == StickyError(device)) current_device = device;
  return error;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  TENSORD_EMULATION_ENTER_WITHOUT_CONTEXT();
  if (!Exists(device)) return RecordError(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "Emulated GPU");
  for (int i = 0; i < 16; ++i) properties->uuid.bytes[i] = static_cast<char>(16 * device + i);
  properties->major = kComputeCapabilityMajor;
  properties->minor = kComputeCapabilityMinor;
  properties->totalGlobalMem = static_cast<size_t>(TheOptions().memory_bytes);
  properties->multiProcessorCount = TheOptions().multiprocessors;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  TENSORD_EMULATION_ENTER_WITHOUT_CONTEXT();
  if (!Exists(device)) return RecordError(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMemoryPoolsSupported:
      *value = 1;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = kComputeCapabilityMajor;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = kComputeCapabilityMinor;
      return cudaSuccess;
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate:
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = 0;  // means unknown: an emulated GPU has no peak rates
      return cudaSuccess;
    default:
      Report("cudaDeviceGetAttribute: this attribute is not emulated");
      return RecordError(cudaErrorInvalidValue);
  }
}

cudaError_t cudaDeviceCanAccessPeer(int* can_access, int device, int peer) {
  TENSORD_EMULATION_ENTER_WITHOUT_CONTEXT();
  if (!Exists(device) || !Exists(peer)) return RecordError(cudaErrorInvalidDevice);
  *can_access = device != peer && TheOptions().peers ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  TENSORD_EMULATION_ENTER(current_device);
  return RecordError(SynchronizeDevice(current_device));
}

// Destroys the context. As CUDA documents, destroys all objects of the device except pools, and
// frees all memory except that of pools. This is stricter than CUDA: it also unloads the libraries
// that were loaded while the device was current. In CUDA, libraries belong to no context.
cudaError_t cudaDeviceReset() {
  TENSORD_EMULATION_ENTER_WITHOUT_CONTEXT();
  const int device = current_device;
  ResetStreams(device);
  ResetEvents(device);
  ResetGraphs(device);
  ResetLibraries(device);
  ResetBlasHandles(device);
  ResetDnnHandles(device);
  ResetMemory(device);
  ResetHostMemory(device);
  Device& d = DeviceAt(device);
  MutexLock lock(&d.mu);
  d.has_context = false;
  d.sticky_error = cudaSuccess;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  TENSORD_EMULATION_ENTER(current_device);
  *attributes = {};
  return RecordError(kernel != nullptr ? cudaSuccess : cudaErrorInvalidDeviceFunction);
}

}  // extern "C"
