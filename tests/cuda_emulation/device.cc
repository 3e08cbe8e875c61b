// Devices: their properties, contexts and errors.
#include "tensord/tests/cuda_emulation/device.h"

#include <array>
#include <cstring>
#include <memory>
#include <vector>

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

cudaError_t UseContext(int device) {
  CountRuntimeCall();
  if (!Exists(device)) return RecordError(cudaErrorNoDevice);
  Device& d = DeviceAt(device);
  MutexLock lock(&d.mu);
  d.has_context = true;
  return RecordError(d.sticky_error);
}

namespace {

std::vector<std::shared_ptr<CUstream_st>> StreamsOf(int device) {
  Device& d = DeviceAt(device);
  MutexLock lock(&d.mu);
  std::vector<std::shared_ptr<CUstream_st>> streams;
  for (const auto& [handle, stream] : d.streams) {
    if (!stream->was_reset()) streams.push_back(stream);
  }
  return streams;
}

}  // namespace

// cudaErrorStreamCaptureUnsupported is what CUDA documents for a capture in any stream.
cudaError_t SynchronizeDevice(int device) {
  for (const auto& stream : StreamsOf(device)) {
    if (!stream->InvalidateCapture()) continue;
    Report("a call waits for a device while one of its streams is captured");
    return cudaErrorStreamCaptureUnsupported;
  }
  for (const auto& stream : StreamsOf(device)) stream->Synchronize();
  return StickyError(device);
}

bool HasContext(int device) {
  Device& d = DeviceAt(device);
  MutexLock lock(&d.mu);
  return d.has_context;
}

int64_t UsedBytes(int device) {
  Device& d = DeviceAt(device);
  MutexLock lock(&d.mu);
  return d.used_bytes;
}

}  // namespace tensord::cuda_emulation

using namespace tensord;                  // NOLINT(google-build-using-namespace)
using namespace tensord::cuda_emulation;  // NOLINT(google-build-using-namespace)

extern "C" {

cudaError_t cudaGetLastError() {
  CountRuntimeCall();
  const cudaError_t sticky = StickyError(current_device);
  const cudaError_t error = sticky != cudaSuccess ? sticky : last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = TheOptions().devices;
  return RecordError(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaDriverGetVersion(int* version) {
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
  current_device = device;
  return UseContext(device);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
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
    default:
      Report("cudaDeviceGetAttribute: this attribute is not emulated");
      return RecordError(cudaErrorInvalidValue);
  }
}

cudaError_t cudaDeviceCanAccessPeer(int* can_access, int device, int peer) {
  if (!Exists(device) || !Exists(peer)) return RecordError(cudaErrorInvalidDevice);
  *can_access = device != peer ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  TENSORD_EMULATION_ENTER(current_device);
  return RecordError(SynchronizeDevice(current_device));
}

// Ends the context. Handles and memory stay valid, which they don't on a real device.
cudaError_t cudaDeviceReset() {
  Device& d = DeviceAt(current_device);
  MutexLock lock(&d.mu);
  for (const auto& [handle, stream] : d.streams) stream->MarkReset();
  DropRegistrations(current_device);
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
