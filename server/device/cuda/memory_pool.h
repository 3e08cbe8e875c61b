// The memory of one logical device on a GPU, allocated and freed in stream order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/device/cuda/cuda_device.h"

namespace tensord::server::cuda {

// Allocates from a memory pool of the driver. With SmallBlocks::kReuse, keeps small blocks that are
// freed on the reuse stream in lists by size. Later allocations on that stream reuse them without a
// call of the runtime. (A runtime call to allocate or free takes about as long as a small kernel.)
//
// Thread-safe. Make the pool's GPU current before each call except AllowPeer().
class MemoryPool {
 public:
  // The size limit of a block in the lists, and of all blocks in the lists together.
  static constexpr int64_t kMaxReusableBlockBytes = int64_t{1} << 20;
  static constexpr int64_t kMaxReusableBytes = int64_t{64} << 20;

  // The driver's pool keeps freed memory up to `keep_bytes`. It returns the rest to the GPU at the
  // next synchronization. Returns UNIMPLEMENTED if the GPU has no stream-ordered memory.
  static absl::StatusOr<std::unique_ptr<MemoryPool>> Create(int physical_index, int64_t keep_bytes,
                                                            cudaStream_t reuse_stream,
                                                            SmallBlocks small_blocks);
  ~MemoryPool();

  // Returns memory, aligned to 256 bytes, for work that is enqueued on `stream` later. `bytes` > 0.
  // If the GPU has too little memory, synchronizes with the GPU, makes all pools on it return their
  // unused memory, and tries again. If that fails, returns RESOURCE_EXHAUSTED. Doesn't try again if
  // nothing has been freed since a second attempt last failed, or on a thread that captures work.
  absl::StatusOr<void*> Allocate(int64_t bytes, cudaStream_t stream);

  // Frees memory that Allocate(bytes) has returned. Work that is already enqueued on `stream` may
  // still use it. If `reusable` and the pool keeps small blocks, a later Allocate() may return this
  // memory from the lists of small blocks. If the driver can't free the memory because the context
  // is lost, Abandon() returns it.
  void Free(void* data, int64_t bytes, cudaStream_t stream, bool reusable = true);

  // If the two GPUs have peer access, lets another GPU access this pool's memory directly.
  // Otherwise does nothing, and copies go through the host.
  void AllowPeer(int peer_physical_index);

  // Returns the blocks in the lists and the blocks that the driver failed to free, without freeing
  // them, and empties the lists. Later frees go to the driver. Call it when the device is lost.
  std::vector<void*> Abandon();

 private:
  MemoryPool(int physical_index, cudaMemPool_t pool, cudaStream_t reuse_stream,
             SmallBlocks small_blocks);

  // Frees the blocks in the lists to the driver's pool.
  void FreeReusable();
  void FreeByDriver(void* data, cudaStream_t stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void FreeAllReusable(int physical_index);
  static void TrimAll(int physical_index);

  const int physical_index_;
  const cudaMemPool_t pool_;
  const SmallBlocks small_blocks_;
  Mutex mu_;
  cudaStream_t reuse_stream_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<int64_t, std::vector<void*>> reusable_ ABSL_GUARDED_BY(mu_);  // by size
  int64_t reusable_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<void*> unfreed_ ABSL_GUARDED_BY(mu_);  // blocks that the driver refused to free
  std::vector<int> peers_ ABSL_GUARDED_BY(mu_);      // the arguments of earlier AllowPeer() calls
};

// A thread holds a CaptureLock while it captures work on a GPU. Synchronizing with the whole GPU
// would invalidate the capture, because the streams of all logical devices on the GPU are in one
// context. A thread that must synchronize with the whole GPU waits until the lock is released.
class CaptureLock {
 public:
  explicit CaptureLock(int physical_index);
  ~CaptureLock();
  CaptureLock(const CaptureLock&) = delete;
  CaptureLock& operator=(const CaptureLock&) = delete;

 private:
  MutexLock lock_;
};

// A pool whose device is lost, and the memory that was allocated from it. A reset of the GPU
// doesn't free this memory. While the context is broken, the memory can't be freed at all.
struct AbandonedPool {
  std::unique_ptr<MemoryPool> pool;
  std::vector<void*> memory;
};

// Keeps `pool` until FreeAbandonedPools(). Thread-safe.
void AddAbandonedPool(int physical_index, AbandonedPool pool);
// Frees the abandoned pools of a GPU. Call it when the GPU can be used again. The GPU must be
// current. Thread-safe.
void FreeAbandonedPools(int physical_index);

}  // namespace tensord::server::cuda
