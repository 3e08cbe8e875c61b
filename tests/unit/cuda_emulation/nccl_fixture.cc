#include "tensord/tests/unit/cuda_emulation/nccl_fixture.h"

#include <utility>

namespace tensord::cuda_emulation {

DeviceMemory::DeviceMemory(const Rank& rank, size_t bytes) : rank_(rank), bytes_(bytes) {
  EXPECT_EQ(cudaSetDevice(rank_.number), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&data_, bytes), cudaSuccess);
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : rank_(other.rank_), bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}

DeviceMemory::~DeviceMemory() {
  if (data_ == nullptr) return;
  cudaSetDevice(rank_.number);
  cudaFree(data_);
}

void DeviceMemory::Copy(void* dst, const void* src, cudaMemcpyKind kind) const {
  EXPECT_EQ(cudaMemcpyAsync(dst, src, bytes_, kind, rank_.stream), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(rank_.stream), cudaSuccess);
}

void DeviceMemory::Write(const void* values, size_t bytes) {
  void* host = nullptr;
  EXPECT_EQ(cudaHostAlloc(&host, bytes, cudaHostAllocDefault), cudaSuccess);
  std::memcpy(host, values, bytes);
  Copy(data_, host, cudaMemcpyHostToDevice);
  EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
}

std::string DeviceMemory::Read() const {
  void* host = nullptr;
  EXPECT_EQ(cudaHostAlloc(&host, bytes_, cudaHostAllocDefault), cudaSuccess);
  Copy(host, data_, cudaMemcpyDeviceToHost);
  std::string bytes(static_cast<const char*>(host), bytes_);
  EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
  return bytes;
}

void NcclEmulationTest::SetUp() {
  options_ = TheOptions();
  TheOptions().devices = kDevices;
  const auto loaded = server::LoadNccl();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  nccl_ = *loaded;
}

void NcclEmulationTest::TearDown() {
  AbortAll();
  for (int device = 0; device < kDevices; ++device) {
    cudaSetDevice(device);
    cudaDeviceReset();
    cudaGetLastError();
  }
  cudaSetDevice(0);
  TheOptions() = options_;
  InjectFailure({});
}

ncclResult_t NcclEmulationTest::Init(const ncclUniqueId& id, int rank, int size, ncclComm_t* comm) {
  EXPECT_EQ(cudaSetDevice(rank % kDevices), cudaSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return nccl_->CommInitRankConfig(comm, size, id, rank, &config);
}

ncclResult_t NcclEmulationTest::Poll(ncclComm_t comm, ncclResult_t first, ncclResult_t second) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (true) {
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(nccl_->CommGetAsyncError(comm, &state), ncclSuccess);
    if (state != first && state != second) return state;
    if (std::chrono::steady_clock::now() > end) return state;
    // NCCL has no function that waits for a state.
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

ncclResult_t NcclEmulationTest::Await(ncclComm_t comm) {
  return Poll(comm, ncclInProgress, ncclInProgress);
}

ncclResult_t NcclEmulationTest::AwaitError(ncclComm_t comm) {
  return Poll(comm, ncclInProgress, ncclSuccess);
}

void NcclEmulationTest::Connect(int size) {
  ncclUniqueId id;
  ASSERT_EQ(nccl_->GetUniqueId(&id), ncclSuccess);
  for (int rank = 0; rank < size; ++rank) {
    ranks_.push_back({rank, nullptr, nullptr});
    ASSERT_EQ(Init(id, rank, size, &ranks_.back().comm), ncclInProgress);
    ASSERT_EQ(cudaStreamCreateWithFlags(&ranks_.back().stream, cudaStreamNonBlocking), cudaSuccess);
  }
  for (const Rank& rank : ranks_) {
    ASSERT_EQ(Await(rank.comm), ncclSuccess) << nccl_->GetLastError(rank.comm);
  }
}

void NcclEmulationTest::AbortAll() {
  for (const Rank& rank : ranks_) {
    if (rank.comm == nullptr) continue;
    EXPECT_EQ(nccl_->CommAbort(rank.comm), ncclSuccess);
  }
  for (const Rank& rank : ranks_) {
    if (rank.stream == nullptr) continue;
    EXPECT_EQ(cudaStreamDestroy(rank.stream), cudaSuccess);
  }
  ranks_.clear();
}

void NcclEmulationTest::StartAll(const std::function<ncclResult_t(const Rank&)>& call) {
  std::vector<std::thread> threads;
  for (const Rank& rank : ranks_) {
    threads.emplace_back([&] {
      EXPECT_EQ(cudaSetDevice(rank.number), cudaSuccess);
      EXPECT_EQ(call(rank), ncclInProgress) << nccl_->GetLastError(rank.comm);
      EXPECT_EQ(Await(rank.comm), ncclSuccess) << nccl_->GetLastError(rank.comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void NcclEmulationTest::RunAll(const std::function<ncclResult_t(const Rank&)>& call) {
  StartAll(call);
  for (const Rank& rank : ranks_) EXPECT_EQ(cudaStreamSynchronize(rank.stream), cudaSuccess);
}

bool NcclEmulationTest::HasNewReports() {
  const bool has_new = UnexpectedReports() > 0;
  ExpectReports();
  return has_new;
}

}  // namespace tensord::cuda_emulation
