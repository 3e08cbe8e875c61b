// The CUDA backend: a logical device on an NVIDIA GPU.
//
// Each device has one compute stream. Memory for kernels is allocated, kernels run and memory is
// freed in the order of this stream, so memory is reused without a thread waiting for it. Host
// transfers run on separate copy streams, concurrently with kernels. Events order them with the
// compute stream. Their data goes through rings of pinned host memory, or directly from host memory
// that is registered with CUDA. Memory for uploads is allocated on the upload stream. A program can
// link this backend without a driver: only calls of these functions need one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/device_name.h"
#include "tensord/server/device/backend.h"
#include "tensord/server/device/device.h"

struct CUstream_st;

namespace tensord::server {

// Returns the backend of NVIDIA's GPUs.
Backend CudaBackend();

// Returns how many GPUs can be used. If it is 0, sets `reason` (may be null) to the cause, such as
// "no NVIDIA driver found". Thread-safe.
int CudaDeviceCount(std::string* reason);

// Returns the memory of GPU `physical_index` in bytes. If there is no such GPU, returns
// INVALID_ARGUMENT. If no GPU can be used, returns UNAVAILABLE. Thread-safe.
absl::StatusOr<int64_t> CudaTotalMemory(int physical_index);

// What a device does with a small block of memory that was freed.
enum class SmallBlocks {
  kReuse,  // keeps it for its next allocations, which is faster than a call of the driver
  kFree,   // frees it by the driver, so that memory checkers detect an access to it
};

// Creates a logical device `name` on GPU `physical_index` that holds at most `limit_bytes` (> 0) in
// buffers. The limit doesn't include the workspace for matrix products and the driver's own memory.
// If cuBLASLt can't be loaded, prints a warning to standard error; matrix products then fail with
// FAILED_PRECONDITION. Returns the errors of CudaTotalMemory() and of the driver.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(
    DeviceName name, int physical_index, int64_t limit_bytes,
    SmallBlocks small_blocks = SmallBlocks::kReuse);

// The next two functions are for work on a stream that doesn't belong to the device of `buffer`,
// but is on its GPU. `buffer` must be on a CUDA device. The caller must keep `buffer` until the
// work has ended. Thread-safe.
//
// Makes work that is enqueued on `stream` (a cudaStream_t) later wait for uploads into `buffer`.
// The Write() calls of these uploads must have returned.
absl::Status OrderAfterCudaUploads(const Buffer& buffer, CUstream_st* stream);
// Makes transfers into `buffer` that are enqueued on `stream` later wait for its allocation. All
// transfers into `buffer` must be on one stream.
absl::Status OrderAfterCudaAllocation(Buffer& buffer, CUstream_st* stream);

// Makes the GPU of `buffer` current, calls `call` and returns its status. `buffer` must be on a
// CUDA device. While `call` runs, the device can't be abandoned and its GPU can't be reset, so
// `call` must return soon after the device is lost. If the device has been abandoned already,
// returns the error of its loss without calling `call`.
absl::Status CallOnCudaDevice(const Buffer& buffer, absl::FunctionRef<absl::Status()> call);

// Makes a GPU usable again after a fault has broken its context. Destroys everything that this
// process has on the GPU, and makes a new context. Returns the driver's error if that fails. All
// devices on the GPU must have been abandoned. A return of OK doesn't prove that the GPU works.
absl::Status ResetCudaDevice(int physical_index);

}  // namespace tensord::server
