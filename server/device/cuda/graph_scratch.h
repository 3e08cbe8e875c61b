// Memory that the kernels of one graph need beside their operands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "tensord/server/device/buffer.h"
#include "tensord/server/device/memory_account.h"

namespace tensord::server::cuda {

// The kernels of a graph run one after another, as they were captured, so that each op may have the
// memory of the one before it. An allocation on the capturing stream would become a node of the
// graph, with memory that is in nobody's figures; what is taken here is the device's, from before
// the graph's first launch until it goes.
// For the one thread that captures; `account` and `device` outlive it.
class GraphScratch {
 public:
  GraphScratch(MemoryAccount* account, Device* device) : account_(account), device_(device) {}

  // An op begins: what is taken from here on may be what ops before have had.
  void BeginOp() { next_ = 0; }

  // RESOURCE_EXHAUSTED where there is no more now.
  absl::StatusOr<void*> Take(int64_t bytes);

  // All that was ever taken.
  std::vector<BufferRef> ReleaseMemory();

 private:
  MemoryAccount* const account_;
  Device* const device_;
  std::vector<BufferRef> blocks_;  // in the order in which an op takes them
  std::vector<BufferRef> outgrown_;
  size_t next_ = 0;
};

}  // namespace tensord::server::cuda
