#include "tensord/server/device/cuda/memory_pool.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/cuda_status.h"

namespace tensord::server::cuda {
namespace {

// All pools of the process. If a logical device is out of memory, the other logical devices on its
// GPU return their unused memory.
struct PoolList {
  Mutex mu;
  std::vector<MemoryPool*> pools ABSL_GUARDED_BY(mu);
};

PoolList& AllPools() {
  static auto* list = new PoolList;  // outlives every static
  return *list;
}

cudaMemPoolProps PropertiesFor(int physical_index) {
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.handleTypes = cudaMemHandleTypeNone;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = physical_index;
  return properties;
}

// Larger than the number of GPUs of a machine. Arrays with an element for each GPU are indexed by
// its physical index modulo this.
constexpr size_t kMaxGpus = 64;

// Returns a GPU's mutex. A thread holds it while it captures work on the GPU or synchronizes with
// the whole GPU.
Mutex& CaptureMutex(int physical_index) {
  static auto* mutexes = new std::array<Mutex, kMaxGpus>;  // outlives every static
  return (*mutexes)[static_cast<size_t>(physical_index) % kMaxGpus];
}

thread_local bool capturing = false;

// Counts frees of memory and destroyed pools, on all GPUs together.
std::atomic<int64_t> frees = 0;
// For each GPU: the value of `frees` when an allocation last failed although all pools of the GPU
// had returned their unused memory. While `frees` has this value, Allocate() doesn't make the pools
// return memory again. Initially 0, as `frees`: if nothing was ever freed, no pool has unused
// memory.
std::array<std::atomic<int64_t>, kMaxGpus> frees_at_exhaustion = {};

// Returns the size of the block for a request of `bytes`. Rounds up to one of four sizes between
// two powers of two, so that few lists serve most requests.
int64_t BlockBytes(int64_t bytes) {
  constexpr int64_t kMinBytes = 512;
  if (bytes <= kMinBytes) return kMinBytes;
  const int64_t quarter = int64_t{1} << (std::bit_width(static_cast<uint64_t>(bytes - 1)) - 3);
  return (bytes + quarter - 1) / quarter * quarter;
}

}  // namespace

CaptureLock::CaptureLock(int physical_index) : lock_(&CaptureMutex(physical_index)) {
  capturing = true;
}

CaptureLock::~CaptureLock() { capturing = false; }

absl::StatusOr<std::unique_ptr<MemoryPool>> MemoryPool::Create(int physical_index,
                                                               int64_t keep_bytes,
                                                               cudaStream_t reuse_stream,
                                                               SmallBlocks small_blocks) {
  int supported = 0;
  TENSORD_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, physical_index));
  if (supported == 0) {
    return absl::UnimplementedError(absl::StrCat(
        "GPU ", physical_index, " has no stream-ordered memory (cudaDevAttrMemoryPoolsSupported)"));
  }
  const cudaMemPoolProps properties = PropertiesFor(physical_index);
  cudaMemPool_t pool = nullptr;
  TENSORD_CUDA_RETURN_IF_ERROR(cudaMemPoolCreate(&pool, &properties));
  std::unique_ptr<MemoryPool> owned(
      new MemoryPool(physical_index, pool, reuse_stream, small_blocks));
  auto threshold = static_cast<uint64_t>(keep_bytes);
  TENSORD_CUDA_RETURN_IF_ERROR(
      cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  return owned;
}

MemoryPool::MemoryPool(int physical_index, cudaMemPool_t pool, cudaStream_t reuse_stream,
                       SmallBlocks small_blocks)
    : physical_index_(physical_index),
      pool_(pool),
      small_blocks_(small_blocks),
      reuse_stream_(reuse_stream) {
  PoolList& all = AllPools();
  MutexLock lock(&all.mu);
  all.pools.push_back(this);
}

MemoryPool::~MemoryPool() {
  {
    PoolList& all = AllPools();
    MutexLock lock(&all.mu);
    std::erase(all.pools, this);
  }
  FreeReusable();
  cudaMemPoolDestroy(pool_);
  ++frees;
}

std::vector<void*> MemoryPool::Abandon() {
  MutexLock lock(&mu_);
  std::vector<void*> blocks = std::exchange(unfreed_, {});
  for (const auto& [bytes, list] : reusable_) blocks.insert(blocks.end(), list.begin(), list.end());
  reusable_.clear();
  reusable_bytes_ = 0;
  reuse_stream_ = nullptr;
  return blocks;
}

void MemoryPool::FreeReusable() {
  // Holds the lock until the end, so that Abandon() waits. After Abandon() the stream may be
  // destroyed.
  MutexLock lock(&mu_);
  std::vector<void*> blocks = std::exchange(unfreed_, {});
  for (const auto& [bytes, list] : reusable_) blocks.insert(blocks.end(), list.begin(), list.end());
  reusable_.clear();
  reusable_bytes_ = 0;
  for (void* data : blocks) FreeByDriver(data, reuse_stream_);
}

void MemoryPool::FreeByDriver(void* data, cudaStream_t stream) {
  if (cudaFreeAsync(data, stream) == cudaSuccess) return;
  cudaGetLastError();  // clears the error, so that no later call reports it
  unfreed_.push_back(data);
}

void MemoryPool::TrimAll(int physical_index) {
  PoolList& all = AllPools();
  MutexLock lock(&all.mu);
  for (MemoryPool* pool : all.pools) {
    if (pool->physical_index_ == physical_index) cudaMemPoolTrimTo(pool->pool_, 0);
  }
}

void MemoryPool::FreeAllReusable(int physical_index) {
  PoolList& all = AllPools();
  MutexLock lock(&all.mu);
  for (MemoryPool* pool : all.pools) {
    if (pool->physical_index_ == physical_index) pool->FreeReusable();
  }
}

absl::StatusOr<void*> MemoryPool::Allocate(int64_t bytes, cudaStream_t stream) {
  if (BlockBytes(bytes) <= kMaxReusableBlockBytes) {
    bytes = BlockBytes(bytes);
    MutexLock lock(&mu_);
    if (stream == reuse_stream_) {
      if (const auto list = reusable_.find(bytes);
          list != reusable_.end() && !list->second.empty()) {
        void* const data = list->second.back();
        list->second.pop_back();
        reusable_bytes_ -= bytes;
        return data;
      }
    }
  }
  void* data = nullptr;
  const auto size = static_cast<size_t>(bytes);
  cudaError_t error = cudaMallocFromPoolAsync(&data, size, pool_, stream);
  if (error == cudaErrorMemoryAllocation && !capturing) {
    cudaGetLastError();  // clears the error, which is handled here
    MutexLock lock(&CaptureMutex(physical_index_));
    std::atomic<int64_t>& exhausted_at =
        frees_at_exhaustion[static_cast<size_t>(physical_index_) % kMaxGpus];
    const int64_t freed = frees;
    if (exhausted_at == freed) return CudaStatus(error, "cudaMallocFromPoolAsync");
    // A pool can return only memory that no queued or running work uses.
    FreeAllReusable(physical_index_);
    TENSORD_CUDA_RETURN_IF_ERROR(cudaDeviceSynchronize());
    TrimAll(physical_index_);
    error = cudaMallocFromPoolAsync(&data, size, pool_, stream);
    if (error == cudaErrorMemoryAllocation) exhausted_at = freed;
  }
  if (error != cudaSuccess) return CudaStatus(error, "cudaMallocFromPoolAsync");
  return data;
}

void MemoryPool::Free(void* data, int64_t bytes, cudaStream_t stream, bool reusable) {
  bytes = BlockBytes(bytes);
  ++frees;
  const bool small = bytes <= kMaxReusableBlockBytes;
  if (reusable && small && small_blocks_ == SmallBlocks::kReuse) {
    MutexLock lock(&mu_);
    if (stream == reuse_stream_ && reusable_bytes_ + bytes <= kMaxReusableBytes) {
      reusable_[bytes].push_back(data);
      reusable_bytes_ += bytes;
      return;
    }
  }
  MutexLock lock(&mu_);
  FreeByDriver(data, stream);
}

void MemoryPool::AllowPeer(int peer_physical_index) {
  MutexLock lock(&mu_);
  if (std::find(peers_.begin(), peers_.end(), peer_physical_index) != peers_.end()) return;
  peers_.push_back(peer_physical_index);
  int connected = 0;
  if (cudaDeviceCanAccessPeer(&connected, peer_physical_index, physical_index_) != cudaSuccess ||
      connected == 0) {
    cudaGetLastError();
    return;
  }
  cudaMemAccessDesc access = {};
  access.location.type = cudaMemLocationTypeDevice;
  access.location.id = peer_physical_index;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  if (cudaMemPoolSetAccess(pool_, &access, 1) != cudaSuccess) cudaGetLastError();
}

namespace {

struct AbandonedPools {
  Mutex mu;
  std::vector<std::pair<int, AbandonedPool>> pools ABSL_GUARDED_BY(mu);  // with their GPU
};

AbandonedPools& AllAbandonedPools() {
  static auto* list = new AbandonedPools;  // outlives every static
  return *list;
}

}  // namespace

void AddAbandonedPool(int physical_index, AbandonedPool pool) {
  AbandonedPools& all = AllAbandonedPools();
  MutexLock lock(&all.mu);
  all.pools.emplace_back(physical_index, std::move(pool));
}

void FreeAbandonedPools(int physical_index) {
  AbandonedPools& all = AllAbandonedPools();
  MutexLock lock(&all.mu);
  for (auto& [gpu, abandoned] : all.pools) {
    if (gpu != physical_index) continue;
    for (void* data : abandoned.memory) {
      if (cudaFree(data) != cudaSuccess) cudaGetLastError();
    }
    abandoned.pool.reset();
    ++frees;
  }
  std::erase_if(all.pools, [&](const auto& entry) { return entry.first == physical_index; });
}

}  // namespace tensord::server::cuda
