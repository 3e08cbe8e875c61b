#include "tensord/server/device/cpu/isa/fill.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

// A tile of kTile rows is read once from each of kTile lines and written to kTile lines, all of
// which stay in the first-level cache meanwhile.
template <typename T>
void Transpose(const void* src_data, int64_t src_stride, void* dst_data, int64_t dst_stride,
               int64_t rows, int64_t cols) {
  constexpr int64_t kTile = 64 / sizeof(T);
  const T* __restrict src = static_cast<const T*>(src_data);
  T* __restrict dst = static_cast<T*>(dst_data);
  int64_t r = 0;
  for (; r + kTile <= rows; r += kTile) {
    int64_t c = 0;
    for (; c + kTile <= cols; c += kTile) {
      T tile[kTile][kTile];
      for (int i = 0; i < kTile; ++i) {
        const T* from = src + (r + i) * src_stride + c;
        for (int j = 0; j < kTile; ++j) tile[i][j] = from[j];
      }
      for (int j = 0; j < kTile; ++j) {
        T* to = dst + (c + j) * dst_stride + r;
        for (int i = 0; i < kTile; ++i) to[i] = tile[i][j];
      }
    }
    for (; c < cols; ++c) {
      for (int i = 0; i < kTile; ++i) dst[c * dst_stride + r + i] = src[(r + i) * src_stride + c];
    }
  }
  for (; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) dst[c * dst_stride + r] = src[r * src_stride + c];
  }
}

template <typename T>
void Gather(const void* src_data, int64_t src_stride, void* dst_data, int64_t n) {
  const T* __restrict src = static_cast<const T*>(src_data);
  T* __restrict dst = static_cast<T*>(dst_data);
  if (src_stride == 1) {
    __builtin_memcpy(dst, src, n * sizeof(T));
  } else if (src_stride == 0) {
    const T value = *src;
    for (int64_t i = 0; i < n; ++i) dst[i] = value;
  } else {
    for (int64_t i = 0; i < n; ++i) dst[i] = src[i * src_stride];
  }
}

template <typename T>
void Fill(Loops& loops) {
  loops.transpose[SizeIndex(sizeof(T))] = Transpose<T>;
  loops.gather[SizeIndex(sizeof(T))] = Gather<T>;
}

}  // namespace

void FillLayoutLoops(Loops& loops) {
  Fill<uint8_t>(loops);
  Fill<uint16_t>(loops);
  Fill<uint32_t>(loops);
  Fill<uint64_t>(loops);
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
