#include "tensord/server/device/cuda/graph_scratch.h"

#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/kernel_table.h"

namespace tensord::server::cuda {

absl::StatusOr<void*> GraphScratch::Allocate(int64_t bytes) {
  if (next_ == blocks_.size()) blocks_.emplace_back();
  BufferRef& block = blocks_[next_++];
  if (block == nullptr || block->size_bytes() < bytes) {
    TENSORD_ASSIGN_OR_RETURN(BufferRef larger, AllocateSpareFor(*account_, *device_, bytes));
    if (block != nullptr) outgrown_.push_back(std::move(block));
    block = std::move(larger);
  }
  return block->data();
}

std::vector<BufferRef> GraphScratch::ReleaseMemory() {
  std::vector<BufferRef> memory = std::exchange(outgrown_, {});
  for (BufferRef& block : blocks_) {
    if (block != nullptr) memory.push_back(std::move(block));
  }
  blocks_.clear();
  return memory;
}

absl::StatusOr<Scratch> MakeScratch(KernelContext& context, int64_t bytes) {
  if (context.graph_scratch == nullptr) return Scratch::Make(*context.pool, bytes, context.stream);
  TENSORD_ASSIGN_OR_RETURN(void* data, context.graph_scratch->Allocate(bytes));
  return Scratch::Of(data);
}

}  // namespace tensord::server::cuda
