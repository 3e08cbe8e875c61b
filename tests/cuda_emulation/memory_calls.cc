// cudart's functions that allocate and free memory outside of pools.
#include "tensord/tests/cuda_emulation/address_space.h"
#include "tensord/tests/cuda_emulation/device.h"
#include "tensord/tests/cuda_emulation/host_memory.h"
#include "tensord/tests/cuda_emulation/memory.h"

using namespace tensord::cuda_emulation;  // NOLINT(google-build-using-namespace)

extern "C" {

cudaError_t cudaMalloc(void** out, size_t bytes) {
  TENSORD_EMULATION_ENTER(CurrentDevice());
  const cudaError_t error = AllocateOnDevice(out, bytes, CurrentDevice());
  if (error == cudaSuccess) FillWithPattern(ToBacking(*out), bytes);
  return RecordError(error);
}

// Waits for the device, as CUDA's function does.
cudaError_t cudaFree(void* data) {
  TENSORD_EMULATION_ENTER(CurrentDevice());
  if (data == nullptr) return cudaSuccess;
  int device = 0;
  const cudaError_t error = BeginFree(data, "cudaFree", &device);
  if (error != cudaSuccess) return RecordError(error);
  const cudaError_t waited = SynchronizeDevice(device);
  FinishFree(data);
  return RecordError(waited);
}

cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned /*flags*/) {
  TENSORD_EMULATION_ENTER(CurrentDevice());
  return RecordError(AllocatePinned(out, bytes, CurrentDevice()));
}

cudaError_t cudaFreeHost(void* data) { return RecordError(FreePinned(data, "cudaFreeHost")); }

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  TENSORD_EMULATION_ENTER(CurrentDevice());
  *total_bytes = static_cast<size_t>(TheOptions().memory_bytes);
  *free_bytes = *total_bytes - static_cast<size_t>(ReservedBytes(CurrentDevice()));
  return cudaSuccess;
}

}  // extern "C"
