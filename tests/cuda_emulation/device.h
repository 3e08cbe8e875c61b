// The state of the emulated devices and of the calling thread, behind the functions of cudart.
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
  cudaError_t lost ABSL_GUARDED_BY(mu) = cudaSuccess;  // the sticky error of the context
  std::map<cudaStream_t, std::shared_ptr<CUstream_st>> streams ABSL_GUARDED_BY(mu);
  int64_t used_bytes ABSL_GUARDED_BY(mu) = 0;
};

// 0 <= index < kMaxDevices.
Device& DeviceAt(int index);

// The calling thread's current device.
int CurrentDevice();

// Remembers an error for cudaGetLastError() on the calling thread, and returns it.
cudaError_t Remember(cudaError_t error);

// The sticky error of a device's context; cudaSuccess if it has none.
cudaError_t StickyError(int device);

// Makes the context unusable until cudaDeviceReset(). The first error stays.
void LoseContext(int device, cudaError_t error);

// Blocks until all work that the device's streams have now is done. Returns the sticky error.
cudaError_t SynchronizeDevice(int device);

// Makes the device's primary context if there is none. Returns the sticky error, remembered.
cudaError_t EnterContext(int device);

}  // namespace tensord::cuda_emulation

// At the start of a function that needs the context of `device`.
#define TENSORD_EMULATION_ENTER(device)                                                   \
  if (const cudaError_t tensord_sticky = ::tensord::cuda_emulation::EnterContext(device); \
      tensord_sticky != cudaSuccess)                                                      \
  return tensord_sticky
