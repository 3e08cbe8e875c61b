// A GPU's memory for one logical device, handed out and taken back in stream order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/mutex.h"

namespace tensord::server::cuda {

// Thread-safe; every call with the pool's GPU current.
class MemoryPool {
 public:
  // Freed memory is kept for reuse up to `keep_bytes`; what is beyond goes back to the driver when
  // the GPU is next waited for. UNIMPLEMENTED where the GPU has no stream-ordered memory.
  static absl::StatusOr<std::unique_ptr<MemoryPool>> Create(int physical_index, int64_t keep_bytes);
  ~MemoryPool();

  // Memory for work on `stream` from now on, aligned to 256 bytes; `bytes` > 0. Where the GPU has
  // no more, waits for it, makes all pools on it give back what they keep, and tries once again
  // before RESOURCE_EXHAUSTED; not on a thread that captures.
  absl::StatusOr<void*> Allocate(int64_t bytes, cudaStream_t stream);

  // Memory that work on `stream` no longer uses from here on. Any pool's.
  static void Free(void* data, cudaStream_t stream);

  // Lets another GPU read this pool's memory directly where the two are so connected; where they
  // aren't, copies go through the host, and nothing is to be done.
  void AllowPeer(int peer_physical_index);

 private:
  MemoryPool(int physical_index, cudaMemPool_t pool);

  static void TrimAll(int physical_index);

  const int physical_index_;
  const cudaMemPool_t pool_;
  Mutex mu_;
  std::vector<int> peers_ ABSL_GUARDED_BY(mu_);  // asked for already
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
  static Scratch Of(void* data) { return Scratch(data, nullptr, /*owned=*/false); }
  Scratch(Scratch&& other) noexcept;
  Scratch& operator=(Scratch&& other) noexcept;
  ~Scratch();

  void* data() const { return data_; }

 private:
  Scratch(void* data, cudaStream_t stream, bool owned)
      : data_(data), stream_(stream), owned_(owned) {}

  void* data_;
  cudaStream_t stream_;
  bool owned_;
};

}  // namespace tensord::server::cuda
