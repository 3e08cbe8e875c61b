// The cells to which kernels report bad values (check_cell.h).
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/device/cuda/cuda_handles.h"
#include "tensord/server/device/device.h"

namespace tensord::server::cuda {

// Allocates cells in blocks, and keeps them for reuse. The guards of a block are in the device's
// memory, the records in pinned host memory, which kernels access at the same address ("CUDA C++
// Programming Guide", "Unified Virtual Address Space"). Cells keep the pool alive. Thread-safe.
class CheckPool : public std::enable_shared_from_this<CheckPool> {
 public:
  // Returns a zero cell. If a kernel has reported to the cell before, makes its guard zero on
  // `stream`, on which the cell's next kernel must be launched. The device must be current.
  // If too many cells are in use, returns RESOURCE_EXHAUSTED.
  absl::StatusOr<std::unique_ptr<CheckMemory>> Make(cudaStream_t stream);

  // Frees all memory. Make() must not be called later, and Read() returns DATA_LOSS. The device
  // must be current.
  void Abandon();

 private:
  class Memory;
  struct Block {
    DeviceMemory guards;
    PinnedMemory records;
  };
  struct Cell {
    CheckCell addresses;
    bool reported;  // a kernel has reported to it since its guard was zero
  };

  absl::StatusOr<Cell> Take(cudaStream_t stream);
  absl::Status AddBlock(cudaStream_t stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Return(Cell cell);
  absl::StatusOr<CheckRecord> Read(const Cell& cell) const;

  mutable Mutex mu_;
  std::vector<Block> blocks_ ABSL_GUARDED_BY(mu_);
  std::vector<Cell> free_ ABSL_GUARDED_BY(mu_);
  bool abandoned_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tensord::server::cuda
