// Copies and fills in stream order. They check their memory when they are enqueued.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tensord/tests/cuda_emulation/address_space.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/device.h"
#include "tensord/tests/cuda_emulation/kernel.h"
#include "tensord/tests/cuda_emulation/memory.h"
#include "tensord/tests/cuda_emulation/stream.h"

using namespace tensord::cuda_emulation;  // NOLINT(google-build-using-namespace)

namespace {

// Returns whether a copy in a stream of `device` may access `data`. If devices can't access each
// other's memory (Options::peers), CUDA copies through the host, so every copy is allowed.
bool IsReachable(const void* data, int device) {
  return !TheOptions().peers || IsAccessible(data, device);
}

cudaError_t EnqueueCopy(void* dst, Space dst_space, const void* src, Space src_space, size_t bytes,
                        const StreamRef& stream, const char* call) {
  cudaError_t error = CheckMemory(dst, bytes, dst_space, call);
  if (error == cudaSuccess) error = CheckMemory(src, bytes, src_space, call);
  const int device = stream->device();
  for (const void* data : {static_cast<const void*>(dst), src}) {
    if (error != cudaSuccess || IsReachable(data, device)) continue;
    Report(absl::StrCat(call, ": ", DescribeAddress(data), ", to which device ", device,
                        " has no access"));
    error = cudaErrorInvalidValue;
  }
  if (error == cudaSuccess) {
    void* to = ToBacking(dst);
    const void* from = ToBacking(src);
    error = stream->EnqueueWork(
        [=] { RunCatchingFaults(device, call, [=] { std::memmove(to, from, bytes); }); });
  }
  return RecordError(error);
}

}  // namespace

extern "C" {

// This is stricter than CUDA: host memory must be pinned. CUDA also accepts pageable memory, but
// may then wait for the stream.
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t handle) {
  static constexpr char kCall[] = "cudaMemcpyAsync";
  TENSORD_EMULATION_ENTER_STREAM(stream, handle);
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

// If devices can access each other's memory (Options::peers), the emulation is stricter than CUDA:
// the stream's device must have access to both buffers. CUDA doesn't require it, and may copy
// through the host.
cudaError_t cudaMemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device,
                                size_t bytes, cudaStream_t handle) {
  static constexpr char kCall[] = "cudaMemcpyPeerAsync";
  TENSORD_EMULATION_ENTER_STREAM(stream, handle);
  cudaError_t error = CheckMemory(dst, bytes, Space::kDevice, kCall, dst_device);
  if (error == cudaSuccess) error = CheckMemory(src, bytes, Space::kDevice, kCall, src_device);
  if (error != cudaSuccess) return RecordError(error);
  return EnqueueCopy(dst, Space::kDevice, src, Space::kDevice, bytes, stream, kCall);
}

cudaError_t cudaMemsetAsync(void* dst, int value, size_t bytes, cudaStream_t handle) {
  static constexpr char kCall[] = "cudaMemsetAsync";
  TENSORD_EMULATION_ENTER_STREAM(stream, handle);
  const int device = stream->device();
  const cudaError_t error = CheckMemory(dst, bytes, Space::kDevice, kCall, device);
  if (error != cudaSuccess) return RecordError(error);
  return RecordError(stream->EnqueueWork([=, to = ToBacking(dst)] {
    RunCatchingFaults(device, kCall, [=] { std::memset(to, value, bytes); });
  }));
}

}  // extern "C"
