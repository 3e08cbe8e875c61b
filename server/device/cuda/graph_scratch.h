// The scratch memory of the kernels of one graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "tensord/server/device/buffer.h"
#include "tensord/server/device/memory_account.h"

namespace tensord::server::cuda {

// The kernels of a graph run one after another, in the order in which they were captured. So all
// ops can use the same memory. An allocation on the capturing stream would become a node of the
// graph, and no limit would count its memory. Therefore this class allocates from the device,
// before the graph's first launch. The graph keeps the memory until it is destroyed.
//
// Not thread-safe: only the thread that captures uses it. `account` and `device` must outlive the
// object.
class GraphScratch {
 public:
  GraphScratch(MemoryAccount* account, Device* device) : account_(account), device_(device) {}

  // Begins an op. Allocate() may return memory that earlier ops took.
  void BeginOp() { next_ = 0; }

  // Returns memory that no other Allocate() of this op returns. If there is too little memory,
  // returns RESOURCE_EXHAUSTED.
  absl::StatusOr<void*> Allocate(int64_t bytes);

  // Moves all memory that Allocate() has returned to the caller.
  std::vector<BufferRef> ReleaseMemory();

 private:
  MemoryAccount* const account_;
  Device* const device_;
  // The blocks in the order in which an op takes them.
  std::vector<BufferRef> blocks_;
  // Blocks that were too small for a later op.
  std::vector<BufferRef> outgrown_;
  size_t next_ = 0;
};

}  // namespace tensord::server::cuda
