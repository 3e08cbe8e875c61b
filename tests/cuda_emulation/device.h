// The emulated devices, and the current device and last error of the calling thread. Thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>

#include "tensord/common/mutex.h"
#include "tensord/tests/cuda_emulation/control.h"

namespace tensord::cuda_emulation {

struct Device {
  Mutex mu;
  bool has_context ABSL_GUARDED_BY(mu) = false;
  cudaError_t sticky_error ABSL_GUARDED_BY(mu) = cudaSuccess;  // of the context
  std::map<cudaStream_t, std::shared_ptr<CUstream_st>> streams ABSL_GUARDED_BY(mu);
  int64_t used_bytes ABSL_GUARDED_BY(mu) = 0;
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

// Blocks until the device's streams have run all tasks that are enqueued now. Returns the sticky
// error. If a stream of the device is being captured, reports that, invalidates the capture and
// returns cudaErrorStreamCaptureUnsupported.
cudaError_t SynchronizeDevice(int device);

// Creates the device's primary context if there is none. Records and returns the sticky error, or
// cudaErrorNoDevice if there is no such device.
cudaError_t UseContext(int device);

}  // namespace tensord::cuda_emulation

// Starts a function that needs the context of `device`. If there is a sticky error, returns it from
// the function.
#define TENSORD_EMULATION_ENTER(device)                                                 \
  if (const cudaError_t tensord_sticky = ::tensord::cuda_emulation::UseContext(device); \
      tensord_sticky != cudaSuccess)                                                    \
  return tensord_sticky
