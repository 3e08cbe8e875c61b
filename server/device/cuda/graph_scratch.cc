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

Scratch& Scratch::operator=(Scratch&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(pool_, other.pool_);
  std::swap(bytes_, other.bytes_);
  std::swap(stream_, other.stream_);
  std::swap(memory_, other.memory_);
  return *this;
}

Scratch::~Scratch() {
  if (pool_ != nullptr) pool_->Free(data_, bytes_, stream_);
}

absl::StatusOr<Scratch> MakeScratch(KernelContext& context, int64_t bytes) {
  Scratch scratch;
  if (context.graph_scratch != nullptr) {
    TENSORD_ASSIGN_OR_RETURN(scratch.data_, context.graph_scratch->Allocate(bytes));
  } else if (bytes <= ScratchMemory::kMaxUnchargedBytes) {
    TENSORD_ASSIGN_OR_RETURN(scratch.data_, context.pool->Allocate(bytes, context.stream));
    scratch.pool_ = context.pool;
    scratch.bytes_ = bytes;
    scratch.stream_ = context.stream;
  } else {
    TENSORD_ASSIGN_OR_RETURN(scratch.memory_, ScratchMemory::Allocate(*context.call, bytes));
    scratch.data_ = scratch.memory_.data();
  }
  return scratch;
}

}  // namespace tensord::server::cuda
