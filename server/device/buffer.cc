#include "tensord/server/device/buffer.h"

namespace tensord::server {

BufferView::BufferView(const Buffer& source, BufferRef kept, int64_t offset, int64_t size_bytes)
    : Buffer(source.device_, size_bytes == 0 ? nullptr : static_cast<char*>(source.data_) + offset,
             size_bytes),
      source_(source.owner()),
      kept_(std::move(kept)) {
  is_view_ = true;
}

BufferRef BufferView::Make(const BufferRef& source, int64_t offset, int64_t size_bytes) {
  return BufferRef(new BufferView(*source, source, offset, size_bytes));
}

BufferRef BufferView::MakeUnowned(const Buffer& source, int64_t offset, int64_t size_bytes) {
  return BufferRef(new BufferView(source, nullptr, offset, size_bytes));
}

}  // namespace tensord::server
