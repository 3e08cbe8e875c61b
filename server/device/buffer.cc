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
  // A view keeps the owner alive, and not `source`. Otherwise, a view of a view of a view would
  // keep all of them.
  const BufferRef& kept =
      source->is_view() ? static_cast<const BufferView&>(*source).kept_ : source;
  return BufferRef(new BufferView(*source, kept, offset, size_bytes));
}

BufferRef BufferView::MakeUnowned(const Buffer& source, int64_t offset, int64_t size_bytes) {
  return BufferRef(new BufferView(source, nullptr, offset, size_bytes));
}

}  // namespace tensord::server
