#include "tensord/server/device/cuda/memory_pool.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_macros.h"
#include "tensord/server/device/cuda/cuda_status.h"

namespace tensord::server::cuda {
namespace {

// Every pool of the process: logical devices on one GPU have to make room for each other.
struct PoolList {
  Mutex mu;
  std::vector<std::pair<int, cudaMemPool_t>> pools ABSL_GUARDED_BY(mu);  // with their GPU
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

// Of a GPU: held while somebody captures there, or waits for all of it.
Mutex& CaptureMutex(int physical_index) {
  static auto* mutexes = new std::array<Mutex, 64>;  // outlives every static
  return (*mutexes)[static_cast<size_t>(physical_index) % mutexes->size()];
}

thread_local bool capturing = false;

}  // namespace

CaptureLock::CaptureLock(int physical_index) : lock_(&CaptureMutex(physical_index)) {
  capturing = true;
}

CaptureLock::~CaptureLock() { capturing = false; }

absl::StatusOr<std::unique_ptr<MemoryPool>> MemoryPool::Create(int physical_index,
                                                               int64_t keep_bytes) {
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
  std::unique_ptr<MemoryPool> owned(new MemoryPool(physical_index, pool));
  auto threshold = static_cast<uint64_t>(keep_bytes);
  TENSORD_CUDA_RETURN_IF_ERROR(
      cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  return owned;
}

MemoryPool::MemoryPool(int physical_index, cudaMemPool_t pool)
    : physical_index_(physical_index), pool_(pool) {
  PoolList& all = AllPools();
  MutexLock lock(&all.mu);
  all.pools.emplace_back(physical_index, pool);
}

MemoryPool::~MemoryPool() {
  {
    PoolList& all = AllPools();
    MutexLock lock(&all.mu);
    std::erase(all.pools, std::pair<int, cudaMemPool_t>(physical_index_, pool_));
  }
  cudaMemPoolDestroy(pool_);
}

void MemoryPool::TrimAll(int physical_index) {
  PoolList& all = AllPools();
  MutexLock lock(&all.mu);
  for (const auto& [gpu, pool] : all.pools) {
    if (gpu == physical_index) cudaMemPoolTrimTo(pool, 0);
  }
}

absl::StatusOr<void*> MemoryPool::Allocate(int64_t bytes, cudaStream_t stream) {
  void* data = nullptr;
  const auto size = static_cast<size_t>(bytes);
  cudaError_t error = cudaMallocFromPoolAsync(&data, size, pool_, stream);
  if (error == cudaErrorMemoryAllocation && !capturing) {
    cudaGetLastError();  // dealt with here
    MutexLock lock(&CaptureMutex(physical_index_));
    // Only memory whose last use is over can be given back.
    TENSORD_CUDA_RETURN_IF_ERROR(cudaDeviceSynchronize());
    TrimAll(physical_index_);
    error = cudaMallocFromPoolAsync(&data, size, pool_, stream);
  }
  if (error != cudaSuccess) return CudaStatus(error, "cudaMallocFromPoolAsync");
  return data;
}

void MemoryPool::Free(void* data, cudaStream_t stream) {
  // It fails only where the context is lost, and the memory with it: that is reported elsewhere.
  if (cudaFreeAsync(data, stream) != cudaSuccess) cudaGetLastError();
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

struct OrphanList {
  Mutex mu;
  std::vector<std::pair<int, Orphans>> orphans ABSL_GUARDED_BY(mu);  // with their GPU
};

OrphanList& AllOrphans() {
  static auto* list = new OrphanList;  // outlives every static
  return *list;
}

}  // namespace

void AddOrphans(int physical_index, Orphans orphans) {
  OrphanList& all = AllOrphans();
  MutexLock lock(&all.mu);
  all.orphans.emplace_back(physical_index, std::move(orphans));
}

void FreeOrphans(int physical_index) {
  OrphanList& all = AllOrphans();
  MutexLock lock(&all.mu);
  for (auto& [gpu, orphans] : all.orphans) {
    if (gpu != physical_index) continue;
    for (void* data : orphans.memory) {
      if (cudaFree(data) != cudaSuccess) cudaGetLastError();
    }
    orphans.pool.reset();
  }
  std::erase_if(all.orphans, [&](const auto& entry) { return entry.first == physical_index; });
}

absl::StatusOr<Scratch> Scratch::Make(MemoryPool& pool, int64_t bytes, cudaStream_t stream) {
  TENSORD_ASSIGN_OR_RETURN(void* data, pool.Allocate(bytes, stream));
  return Scratch(data, stream, /*owned=*/true);
}

Scratch::Scratch(Scratch&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), stream_(other.stream_), owned_(other.owned_) {}

Scratch& Scratch::operator=(Scratch&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(stream_, other.stream_);
  std::swap(owned_, other.owned_);
  return *this;
}

Scratch::~Scratch() {
  if (owned_ && data_ != nullptr) MemoryPool::Free(data_, stream_);
}

}  // namespace tensord::server::cuda
