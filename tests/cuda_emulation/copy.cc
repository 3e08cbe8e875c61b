// Copies and fills in stream order. They check their memory when they are enqueued.
#include <cstring>

#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/device.h"
#include "tensord/tests/cuda_emulation/kernel.h"
#include "tensord/tests/cuda_emulation/memory.h"
#include "tensord/tests/cuda_emulation/stream.h"

using namespace tensord::cuda_emulation;  // NOLINT(google-build-using-namespace)

namespace {

cudaError_t EnqueueCopy(void* dst, Space dst_space, const void* src, Space src_space, size_t bytes,
                        cudaStream_t stream, const char* call) {
  cudaError_t error = CheckMemory(dst, bytes, dst_space, call);
  if (error == cudaSuccess) error = CheckMemory(src, bytes, src_space, call);
  if (error == cudaSuccess) {
    error = stream->EnqueueWork([=, device = stream->device()] {
      RunCatchingFaults(device, call, [=] { std::memmove(dst, src, bytes); });
    });
  }
  return RecordError(error);
}

}  // namespace

extern "C" {

// Stricter than CUDA: host memory must be pinned. CUDA also accepts pageable memory, but may then
// wait for the stream.
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  static constexpr char kCall[] = "cudaMemcpyAsync";
  TENSORD_EMULATION_ENTER_STREAM(stream, kCall);
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return EnqueueCopy(dst, Space::kDevice, src, Space::kPinnedHost, bytes, stream, kCall);
    case cudaMemcpyDeviceToHost:
      return EnqueueCopy(dst, Space::kPinnedHost, src, Space::kDevice, bytes, stream, kCall);
    case cudaMemcpyDeviceToDevice:
      return EnqueueCopy(dst, Space::kDevice, src, Space::kDevice, bytes, stream, kCall);
    default:
      Report("cudaMemcpyAsync: this kind of copy is not emulated");
      return RecordError(cudaErrorNotSupported);
  }
}

cudaError_t cudaMemcpyPeerAsync(void* dst, int /*dst_device*/, const void* src, int /*src_device*/,
                                size_t bytes, cudaStream_t stream) {
  static constexpr char kCall[] = "cudaMemcpyPeerAsync";
  TENSORD_EMULATION_ENTER_STREAM(stream, kCall);
  return EnqueueCopy(dst, Space::kDevice, src, Space::kDevice, bytes, stream, kCall);
}

cudaError_t cudaMemsetAsync(void* dst, int value, size_t bytes, cudaStream_t stream) {
  TENSORD_EMULATION_ENTER_STREAM(stream, "cudaMemsetAsync");
  const cudaError_t error = CheckMemory(dst, bytes, Space::kDevice, "cudaMemsetAsync");
  if (error != cudaSuccess) return RecordError(error);
  return RecordError(stream->EnqueueWork([=, device = stream->device()] {
    RunCatchingFaults(device, "cudaMemsetAsync", [=] { std::memset(dst, value, bytes); });
  }));
}

}  // extern "C"
