#include "tensord/client/python/tensord/_core/host_array.h"

#include <cstring>

#include "tensord/client/creation.h"

namespace tensord::python {
namespace {

// Copies `count` elements of `size` bytes that lie `stride` bytes apart.
template <size_t size>
void CopyElements(const uint8_t* from, int64_t stride, int64_t count, uint8_t* out) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(out + i * size, from + i * stride, size);
}

// Copies the elements of the axes from `axis` on, row-major. Returns the end of what it wrote.
uint8_t* CopyAxis(const HostArray& array, size_t axis, const uint8_t* from, uint8_t* out) {
  const int64_t count = array.shape[axis], stride = array.strides[axis];
  if (axis + 1 < array.shape.size()) {
    for (int64_t i = 0; i < count; ++i) out = CopyAxis(array, axis + 1, from + i * stride, out);
    return out;
  }
  switch (const int64_t size = SizeOf(array.dtype)) {
    case 1:
      CopyElements<1>(from, stride, count, out);
      return out + count;
    case 2:
      CopyElements<2>(from, stride, count, out);
      return out + 2 * count;
    case 4:
      CopyElements<4>(from, stride, count, out);
      return out + 4 * count;
    case 8:
      CopyElements<8>(from, stride, count, out);
      return out + 8 * count;
    default:
      CopyElements<16>(from, stride, count, out);
      return out + size * count;
  }
}

}  // namespace

Tensor Upload(const HostArray& array, const Device& device, const TransferOptions& options) {
  const Shape shape(absl::MakeConstSpan(array.shape));
  const TensorSpec spec{array.dtype, shape};
  const auto bytes = static_cast<size_t>(spec.size_bytes());
  std::vector<uint8_t> copy;
  const uint8_t* data = array.data;
  if (array.num_elements() > 0 && !array.row_major()) {
    copy.resize(bytes);
    CopyAxis(array, 0, array.data, copy.data());
    data = copy.data();
  }
  const absl::Span<const uint8_t> elements(data, bytes);
  if (bytes <= static_cast<size_t>(kMaxInlineBytes)) return FromBytes(device, spec, elements);
  return InterruptibleCall([&] { return FromBytes(device, spec, elements, options); });
}

void ReadInto(const Tensor& x, void* data, const TransferOptions& options) {
  RaiseIfError(InterruptibleRead(x, [&] {
    return WithElementType(x.dtype(), [&](auto element) {
      using T = decltype(element);
      return x.ReadInto<T>(
          absl::MakeSpan(static_cast<T*>(data), static_cast<size_t>(x.num_elements())), options);
    });
  }));
}

}  // namespace tensord::python
