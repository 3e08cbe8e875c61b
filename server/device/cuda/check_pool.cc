#include "tensord/server/device/cuda/check_pool.h"

#include <cstring>
#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/cuda_status.h"

namespace tensord::server::cuda {
namespace {

constexpr int64_t kBlockCells = 256;
// Limits the cells in use to 131,072. A program has a cell for each of its checked ops, at most
// 65,536.
constexpr size_t kMaxBlocks = 512;

}  // namespace

class CheckPool::Memory final : public CheckMemory {
 public:
  Memory(std::shared_ptr<CheckPool> pool, Cell cell) : pool_(std::move(pool)), cell_(cell) {}
  ~Memory() override { pool_->Return(cell_); }

  const CheckCell& cell() const override { return cell_.addresses; }
  absl::StatusOr<CheckRecord> Read() const override { return pool_->Read(cell_); }

 private:
  const std::shared_ptr<CheckPool> pool_;
  const Cell cell_;
};

absl::StatusOr<std::unique_ptr<CheckMemory>> CheckPool::Make(cudaStream_t stream) {
  TENSORD_ASSIGN_OR_RETURN(const Cell cell, Take(stream));
  auto memory = std::make_unique<Memory>(shared_from_this(), cell);
  if (cell.reported) {
    TENSORD_CUDA_RETURN_IF_ERROR(
        cudaMemsetAsync(cell.addresses.guard, 0, sizeof(CheckGuard), stream));
  }
  return memory;
}

absl::StatusOr<CheckPool::Cell> CheckPool::Take(cudaStream_t stream) {
  MutexLock lock(&mu_);
  if (free_.empty()) TENSORD_RETURN_IF_ERROR(AddBlock(stream));
  const Cell cell = free_.back();
  free_.pop_back();
  *cell.addresses.record = CheckRecord{};
  return cell;
}

absl::Status CheckPool::AddBlock(cudaStream_t stream) {
  if (blocks_.size() >= kMaxBlocks) {
    return absl::ResourceExhaustedError(
        "the device has too many ops with indices whose results nothing has read; read or delete "
        "some of them");
  }
  Block block;
  constexpr int64_t kGuardBytes = kBlockCells * sizeof(CheckGuard);
  TENSORD_ASSIGN_OR_RETURN(block.guards, MakeDeviceMemory(kGuardBytes));
  TENSORD_ASSIGN_OR_RETURN(block.records, MakePinnedMemory(kBlockCells * sizeof(CheckRecord)));
  TENSORD_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(block.guards.get(), 0, kGuardBytes, stream));
  auto* const guards = static_cast<CheckGuard*>(block.guards.get());
  auto* const records = static_cast<CheckRecord*>(block.records.get());
  for (int64_t i = kBlockCells - 1; i >= 0; --i) {
    free_.push_back({{guards + i, records + i}, /*reported=*/false});
  }
  blocks_.push_back(std::move(block));
  return absl::OkStatus();
}

void CheckPool::Return(Cell cell) {
  MutexLock lock(&mu_);
  if (abandoned_) return;
  cell.reported = cell.addresses.record->key != 0;
  free_.push_back(cell);
}

absl::StatusOr<CheckRecord> CheckPool::Read(const Cell& cell) const {
  MutexLock lock(&mu_);
  if (abandoned_) return absl::DataLossError("the device was lost before its kernels had finished");
  return *cell.addresses.record;
}

void CheckPool::Abandon() {
  MutexLock lock(&mu_);
  abandoned_ = true;
  free_.clear();
  blocks_.clear();
}

}  // namespace tensord::server::cuda
