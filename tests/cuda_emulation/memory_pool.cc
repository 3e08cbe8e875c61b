#include "tensord/tests/cuda_emulation/memory_pool.h"

#include <algorithm>
#include <array>
#include <memory>

#include "absl/strings/str_cat.h"
#include "tensord/tests/cuda_emulation/device.h"
#include "tensord/tests/cuda_emulation/handles.h"
#include "tensord/tests/cuda_emulation/memory.h"
#include "tensord/tests/cuda_emulation/stream.h"

namespace tensord::cuda_emulation {
namespace {

// The memory of one device that is in use.
struct Usage {
  uint64_t allocated_bytes = 0;
  uint64_t taken_bytes = 0;  // allocated_bytes, plus freed memory that pools keep
};

// Guards the usage of all devices and the state of all pools.
Mutex usage_mu;
std::array<Usage, kMaxDevices> usages ABSL_GUARDED_BY(usage_mu);

Usage& UsageOf(int device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(usage_mu) {
  return usages.at(static_cast<size_t>(device));
}

bool TakeLocked(int device, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(usage_mu) {
  const auto total = static_cast<uint64_t>(TheOptions().memory_bytes);
  Usage& usage = UsageOf(device);
  if (usage.taken_bytes > total || bytes > total - usage.taken_bytes) return false;
  usage.taken_bytes += bytes;
  return true;
}

HandleTable<cudaMemPool_t, Pool>& Pools() {
  static auto* table = new HandleTable<cudaMemPool_t, Pool>("a pool");  // never destroyed
  return *table;
}

}  // namespace

Pool::~Pool() {
  MutexLock lock(&usage_mu);
  UsageOf(device_).taken_bytes -= kept_bytes_;
}

bool Pool::Acquire(uint64_t bytes) {
  MutexLock lock(&usage_mu);
  if (max_bytes_ > 0 && allocated_bytes_ + bytes > max_bytes_) return false;
  const uint64_t wanted = allocated_bytes_ + bytes;
  if (wanted < bytes) return false;  // overflow
  if (wanted > kept_bytes_) {
    if (!TakeLocked(device_, wanted - kept_bytes_)) return false;
    kept_bytes_ = wanted;
  }
  allocated_bytes_ = wanted;
  UsageOf(device_).allocated_bytes += bytes;
  return true;
}

void Pool::Release(uint64_t bytes) {
  bool destroyed = false;
  {
    MutexLock lock(&usage_mu);
    allocated_bytes_ -= bytes;
    UsageOf(device_).allocated_bytes -= bytes;
    destroyed = destroyed_;
  }
  if (destroyed) TrimTo(0);
}

void Pool::set_release_threshold(uint64_t bytes) {
  MutexLock lock(&usage_mu);
  release_threshold_ = bytes;
}

void Pool::TrimTo(uint64_t keep_bytes) {
  MutexLock lock(&usage_mu);
  const uint64_t keep = std::max(allocated_bytes_, keep_bytes);
  if (kept_bytes_ <= keep) return;
  UsageOf(device_).taken_bytes -= kept_bytes_ - keep;
  kept_bytes_ = keep;
}

void Pool::OnSynchronize() {
  uint64_t threshold = 0;
  {
    MutexLock lock(&usage_mu);
    threshold = release_threshold_;
  }
  TrimTo(threshold);
}

void Pool::OnDestroy() {
  {
    MutexLock lock(&usage_mu);
    destroyed_ = true;
  }
  TrimTo(0);
}

void Pool::SetAccess(int device, bool accessible) {
  MutexLock lock(&usage_mu);
  const uint32_t bit = uint32_t{1} << device;
  accessible_from_ = accessible ? accessible_from_ | bit : accessible_from_ & ~bit;
}

bool Pool::IsAccessibleFrom(int device) const {
  MutexLock lock(&usage_mu);
  return device == device_ || (accessible_from_ >> device & 1) != 0;
}

bool AcquireDeviceMemory(int device, uint64_t bytes) {
  MutexLock lock(&usage_mu);
  if (!TakeLocked(device, bytes)) return false;
  UsageOf(device).allocated_bytes += bytes;
  return true;
}

void ReleaseDeviceMemory(int device, uint64_t bytes) {
  MutexLock lock(&usage_mu);
  UsageOf(device).allocated_bytes -= bytes;
  UsageOf(device).taken_bytes -= bytes;
}

void ReleaseUnusedMemory(int device) {
  for (const std::shared_ptr<Pool>& pool : Pools().ObjectsOf(device)) pool->OnSynchronize();
}

int64_t UsedBytes(int device) {
  MutexLock lock(&usage_mu);
  return static_cast<int64_t>(UsageOf(device).allocated_bytes);
}

int64_t ReservedBytes(int device) {
  MutexLock lock(&usage_mu);
  return static_cast<int64_t>(UsageOf(device).taken_bytes);
}

size_t LivePools() { return Pools().size(); }

}  // namespace tensord::cuda_emulation

using namespace tensord::cuda_emulation;  // NOLINT(google-build-using-namespace)

// Declares `pool`, the pool that `handle` refers to. If it doesn't exist, returns an error from the
// function.
#define TENSORD_EMULATION_FIND_POOL(pool, handle)   \
  const auto pool = Pools().Find(handle, __func__); \
  if (pool == nullptr) return RecordError(cudaErrorInvalidValue)

extern "C" {

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  const int device = properties->location.id;
  if (properties->allocType != cudaMemAllocationTypePinned ||
      properties->location.type != cudaMemLocationTypeDevice || device < 0 ||
      device >= TheOptions().devices) {
    Report("cudaMemPoolCreate: the pool must have pinned memory on a device that exists");
    return RecordError(cudaErrorInvalidValue);
  }
  TENSORD_EMULATION_ENTER(device);
  *pool = Pools().Add(std::make_shared<Pool>(device, properties->maxSize));
  return cudaSuccess;
}

// Memory that is allocated from the pool stays valid. The program frees it as usual.
cudaError_t cudaMemPoolDestroy(cudaMemPool_t handle) {
  const auto pool = Pools().Remove(handle, "cudaMemPoolDestroy");
  if (pool == nullptr) return RecordError(cudaErrorInvalidValue);
  pool->OnDestroy();
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute, void* value) {
  TENSORD_EMULATION_FIND_POOL(pool, handle);
  TENSORD_EMULATION_ENTER(pool->device());
  if (attribute != cudaMemPoolAttrReleaseThreshold) {
    Report("cudaMemPoolSetAttribute: this attribute is not emulated");
    return RecordError(cudaErrorInvalidValue);
  }
  pool->set_release_threshold(*static_cast<const uint64_t*>(value));
  return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t handle, size_t keep_bytes) {
  TENSORD_EMULATION_FIND_POOL(pool, handle);
  TENSORD_EMULATION_ENTER(pool->device());
  pool->TrimTo(keep_bytes);
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t handle, const cudaMemAccessDesc* descriptions,
                                 size_t count) {
  TENSORD_EMULATION_FIND_POOL(pool, handle);
  TENSORD_EMULATION_ENTER(pool->device());
  for (const cudaMemAccessDesc* d = descriptions; d != descriptions + count; ++d) {
    const int device = d->location.id;
    const bool accessible = d->flags == cudaMemAccessFlagsProtReadWrite;
    if (d->location.type != cudaMemLocationTypeDevice || device < 0 ||
        device >= TheOptions().devices || (device == pool->device() && !accessible)) {
      Report("cudaMemPoolSetAccess: no such device, or the pool's device would lose its access");
      return RecordError(cudaErrorInvalidValue);
    }
    if (device != pool->device() && !TheOptions().peers) {
      Report("cudaMemPoolSetAccess: the devices can't access each other's memory");
      return RecordError(cudaErrorInvalidDevice);
    }
    if (device != pool->device()) pool->SetAccess(device, accessible);
  }
  return cudaSuccess;
}

cudaError_t cudaMallocFromPoolAsync(void** out, size_t bytes, cudaMemPool_t pool_handle,
                                    cudaStream_t stream_handle) {
  TENSORD_EMULATION_ENTER_STREAM(stream, stream_handle);
  TENSORD_EMULATION_FIND_POOL(pool, pool_handle);
  if (bytes == 0) {
    Report("cudaMallocFromPoolAsync: the size is 0 bytes");
    return RecordError(cudaErrorInvalidValue);
  }
  void* data = nullptr;
  const cudaError_t error = AllocateFromPool(&data, bytes, pool);
  if (error != cudaSuccess) return RecordError(error);
  // The caller may use the memory only after the stream has reached the allocation. This task
  // overwrites data that was written earlier.
  const cudaError_t enqueued =
      stream->EnqueueControl([=] { ReachAllocation(data); }, "cudaMallocFromPoolAsync");
  if (enqueued == cudaSuccess) {
    *out = data;
  } else if (BeginFree(data, "cudaMallocFromPoolAsync", nullptr) == cudaSuccess) {
    FinishFree(data);
  }
  return RecordError(enqueued);
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t handle) {
  TENSORD_EMULATION_ENTER_STREAM(stream, handle);
  if (stream->InvalidateCapture()) {
    Report("cudaFreeAsync on a stream that is captured");
    return RecordError(cudaErrorStreamCaptureUnsupported);
  }
  const cudaError_t error = BeginFree(data, "cudaFreeAsync", nullptr);
  if (error != cudaSuccess) return RecordError(error);
  return RecordError(stream->EnqueueControl(
      [=] {
        if (!Stream::Current()->was_reset()) ReachFree(data);
        FinishFree(data);
      },
      "cudaFreeAsync"));
}

}  // extern "C"
