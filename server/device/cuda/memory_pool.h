// A GPU's memory for one logical device, handed out and taken back in stream order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/mutex.h"

namespace tensord::server::cuda {

// Memory of the driver's pool. Small blocks that are freed on the reuse stream are kept in lists by
// size, and handed out again for work on that stream without a call of the runtime. A call of the
// driver's pool takes about as long as a small kernel.
//
// Thread-safe. Make the pool's GPU current before each call.
class MemoryPool {
 public:
  // Blocks up to this size are kept, kMaxReusableBytes of them altogether.
  static constexpr int64_t kMaxReusableBlockBytes = int64_t{1} << 20;
  static constexpr int64_t kMaxReusableBytes = int64_t{64} << 20;

  // The driver's pool keeps freed memory up to `keep_bytes`. It returns the rest to the GPU at the
  // next synchronization. Returns UNIMPLEMENTED if the GPU has no stream-ordered memory.
  static absl::StatusOr<std::unique_ptr<MemoryPool>> Create(int physical_index, int64_t keep_bytes,
                                                            cudaStream_t reuse_stream);
  ~MemoryPool();

  // Turns the lists of small blocks off or on for all pools of the process. With the lists, memory
  // that a kernel uses too early or too late may still be valid; tests turn them off.
  static void SetReuse(bool on);

  // Returns memory for work on `stream` from now on, aligned to 256 bytes. `bytes` > 0. If the GPU
  // has no more, waits for it, makes all pools on it give back what they keep, and tries again. If
  // that fails, too, or if nothing has been freed since it last failed, returns RESOURCE_EXHAUSTED.
  // A thread that captures doesn't wait.
  absl::StatusOr<void*> Allocate(int64_t bytes, cudaStream_t stream);

  // Takes back memory of Allocate(bytes). Work on `stream` no longer uses it from now on. If the
  // context is lost, the memory can't be freed: Abandon() returns it.
  void Free(void* data, int64_t bytes, cudaStream_t stream);

  // Lets another GPU read this pool's memory directly if the two are so connected. If they aren't,
  // does nothing: copies then go through the host.
  void AllowPeer(int peer_physical_index);

  // The device is lost. Returns the blocks in the lists, and those that could not be freed. From
  // now on the pool keeps none.
  std::vector<void*> Abandon();

 private:
  MemoryPool(int physical_index, cudaMemPool_t pool, cudaStream_t reuse_stream);

  // Gives the blocks in the lists back to the driver's pool.
  void FreeReusable();
  void FreeByDriver(void* data, cudaStream_t stream);
  static void FreeAllReusable(int physical_index);
  static void TrimAll(int physical_index);

  const int physical_index_;
  const cudaMemPool_t pool_;
  Mutex mu_;
  cudaStream_t reuse_stream_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<int64_t, std::vector<void*>> reusable_ ABSL_GUARDED_BY(mu_);  // by size
  int64_t reusable_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<void*> unfreed_ ABSL_GUARDED_BY(mu_);  // the driver has refused to free them
  std::vector<int> peers_ ABSL_GUARDED_BY(mu_);      // asked for already
};

// A thread captures work on the GPU for as long as it has one. Meanwhile nobody may wait for the
// GPU as a whole, which would break off the capture (the streams of all logical devices on it are
// in one context): who has to waits for the capture to end.
class CaptureLock {
 public:
  explicit CaptureLock(int physical_index);
  ~CaptureLock();
  CaptureLock(const CaptureLock&) = delete;
  CaptureLock& operator=(const CaptureLock&) = delete;

 private:
  MutexLock lock_;
};

// A pool whose device is lost, and what it had handed out: resetting the GPU doesn't free it, and
// as long as the context is broken nothing can.
struct Orphans {
  std::unique_ptr<MemoryPool> pool;
  std::vector<void*> memory;
};

// Thread-safe. Keeps them until FreeOrphans, which is to be called when the GPU can be used again,
// with the GPU current.
void AddOrphans(int physical_index, Orphans orphans);
void FreeOrphans(int physical_index);

// Memory for the time of one kernel, given back in stream order when it goes out of scope.
class Scratch {
 public:
  static absl::StatusOr<Scratch> Make(MemoryPool& pool, int64_t bytes, cudaStream_t stream);
  // Somebody else's, who takes care that nothing else uses it meanwhile.
  static Scratch Of(void* data) { return Scratch(nullptr, data, 0, nullptr); }
  Scratch(Scratch&& other) noexcept;
  Scratch& operator=(Scratch&& other) noexcept;
  ~Scratch();

  void* data() const { return data_; }

 private:
  Scratch(MemoryPool* pool, void* data, int64_t bytes, cudaStream_t stream)
      : pool_(pool), data_(data), bytes_(bytes), stream_(stream) {}

  MemoryPool* pool_;  // null: the memory is somebody else's
  void* data_;
  int64_t bytes_;
  cudaStream_t stream_;
};

}  // namespace tensord::server::cuda
