// The emulated devices, and the current device and last error of the calling thread. Thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tensord/common/util/mutex.h"
#include "tensord/tests/cuda_emulation/control.h"

namespace tensord::cuda_emulation {

struct Device {
  Mutex mu;
  bool has_context ABSL_GUARDED_BY(mu) = false;
  cudaError_t sticky_error ABSL_GUARDED_BY(mu) = cudaSuccess;  // of the context
};

// Returns the state of a device. 0 <= index < kMaxDevices. Lives as long as the process.
Device& DeviceAt(int index);

// Returns the calling thread's current device.
int CurrentDevice();

// Stores `error` for cudaGetLastError() on the calling thread, unless it is cudaSuccess. Returns
// `error`.
cudaError_t RecordError(cudaError_t error);

// Returns the sticky error of a device's context; cudaSuccess if it has none.
cudaError_t StickyError(int device);

// Sets the sticky error, unless the context has one. The context stays unusable until
// cudaDeviceReset().
void SetStickyError(int device, cudaError_t error);

// Returns whether CUDA documents that the context can't be used after this error.
bool IsSticky(cudaError_t error);

// Blocks until the device's streams have run all tasks that are enqueued now. Returns the sticky
// error. If a stream of the device is being captured, reports that, invalidates the capture and
// returns cudaErrorStreamCaptureUnsupported.
cudaError_t SynchronizeDevice(int device);

// The function `call`, which needs the context of `device`, calls this first. Creates the primary
// context if there is none. If the device doesn't exist, records and returns cudaErrorNoDevice. If
// an error is injected or the context has a sticky error, records and returns that error.
cudaError_t UseContext(int device, const char* call);

// cudaDeviceReset() calls these functions. Each destroys the device's objects of one kind, and is
// defined in the file of that kind.
void ResetStreams(int device);
void ResetEvents(int device);
void ResetGraphs(int device);
void ResetLibraries(int device);
void ResetBlasHandles(int device);
void ResetDnnHandles(int device);
void ResetMemory(int device);

// Return the number of live objects of one kind, on all devices.
size_t LiveStreams();
size_t LiveEvents();
size_t LiveGraphs();
size_t LiveLibraries();
size_t LiveBlasHandles();
size_t LiveDnnHandles();
size_t LiveDnnDescriptors();
size_t LivePools();
size_t LivePinnedAllocations();

}  // namespace tensord::cuda_emulation

// The first statement of a function that needs the context of `device`. If UseContext() fails,
// returns its error from the function.
#define TENSORD_EMULATION_ENTER(device)                                                          \
  if (const cudaError_t tensord_error = ::tensord::cuda_emulation::UseContext(device, __func__); \
      tensord_error != cudaSuccess)                                                              \
  return tensord_error
