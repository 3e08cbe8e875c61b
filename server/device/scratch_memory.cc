#include "tensord/server/device/scratch_memory.h"

#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/server/device/memory_account.h"

namespace tensord::server {

ScratchMemory::ScratchMemory(Device* device, BufferRef buffer)
    : buffer_(std::move(buffer)), device_(device) {
  device->scratch_bytes_.fetch_add(buffer_->size_bytes(), std::memory_order_relaxed);
}

ScratchMemory::~ScratchMemory() {
  if (buffer_ == nullptr) return;
  device_->scratch_bytes_.fetch_sub(buffer_->size_bytes(), std::memory_order_relaxed);
}

absl::StatusOr<ScratchMemory> ScratchMemory::Allocate(const KernelCall& call, int64_t size_bytes) {
  Device& device = call.context.device;
  absl::StatusOr<BufferRef> buffer = AllocateFor(call.context.account, device, size_bytes);
  if (buffer.ok()) return ScratchMemory(&device, *std::move(buffer));
  if (!absl::IsResourceExhausted(buffer.status())) return buffer.status();
  int64_t result_bytes = 0;
  for (const Operand& output : call.outputs) result_bytes += output.spec->size_bytes();
  return WithPrefix(
      buffer.status(),
      absl::StrCat("needs ", result_bytes, " bytes for its results and at least ",
                   device.scratch_bytes() + size_bytes, " bytes for intermediate values: "));
}

}  // namespace tensord::server
