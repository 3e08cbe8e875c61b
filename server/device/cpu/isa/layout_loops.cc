#include <string.h>

#include "tensord/server/device/cpu/isa/fill.h"
#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

// A tile has kTile rows and columns. Its rows in `src` and in `dst` are one or two cache lines
// each, which stay in the first-level cache while the tile is transposed.
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
  } else if (src_stride == -1) {
    for (int64_t i = 0; i < n; ++i) dst[i] = src[-i];
  } else {
    for (int64_t i = 0; i < n; ++i) dst[i] = src[i * src_stride];
  }
}

#ifdef __SSE2__
#if defined(__AVX512F__)
using Vector = __m512i;
void StoreVector(void* to, const void* from) {
  _mm512_stream_si512(static_cast<Vector*>(to), _mm512_loadu_si512(from));
}
#elif defined(__AVX__)
using Vector = __m256i;
void StoreVector(void* to, const void* from) {
  _mm256_stream_si256(static_cast<Vector*>(to),
                      _mm256_loadu_si256(static_cast<const Vector*>(from)));
}
#else
using Vector = __m128i;
void StoreVector(void* to, const void* from) {
  _mm_stream_si128(static_cast<Vector*>(to), _mm_loadu_si128(static_cast<const Vector*>(from)));
}
#endif

// Writes whole cache lines without the caches. Writes the bytes before the first whole line and
// after the last one through the caches.
void Stream(const void* src_data, void* dst_data, int64_t bytes) {
  constexpr int64_t kLine = 64;
  const char* src = static_cast<const char*>(src_data);
  char* dst = static_cast<char*>(dst_data);
  const int64_t past_line = reinterpret_cast<intptr_t>(dst) & (kLine - 1);
  int64_t i = past_line == 0 ? 0 : kLine - past_line;
  if (i > bytes) i = bytes;
  memcpy(dst, src, i);
  for (; i + kLine <= bytes; i += kLine) {
    for (int64_t j = 0; j < kLine; j += sizeof(Vector)) StoreVector(dst + i + j, src + i + j);
  }
  memcpy(dst + i, src + i, bytes - i);
  _mm_sfence();
}
#else
void Stream(const void* src, void* dst, int64_t bytes) { memcpy(dst, src, bytes); }
#endif

// For an index in range, both sums are in [0, 2 size). For any other index, one or both are
// negative.
template <typename T>
IndexRange RangeOfIndices(const void* data, int64_t n, int64_t size) {
  const T* indices = static_cast<const T*>(data);
  const auto end = static_cast<uint64_t>(size);
  uint64_t signs = 0, index_signs = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto index = static_cast<uint64_t>(static_cast<int64_t>(indices[i]));
    signs |= (index + end) | (end - 1 - index);
    index_signs |= index;
  }
  if (static_cast<int64_t>(signs) < 0) return IndexRange::kOutside;
  return static_cast<int64_t>(index_signs) < 0 ? IndexRange::kInRange : IndexRange::kNonNegative;
}

template <typename T>
void FillLayout(Loops& loops) {
  loops.transpose[SizeIndex(sizeof(T))] = Transpose<T>;
  loops.gather[SizeIndex(sizeof(T))] = Gather<T>;
}

}  // namespace

void FillLayoutLoops(Loops& loops) {
  FillLayout<uint8_t>(loops);
  FillLayout<uint16_t>(loops);
  FillLayout<uint32_t>(loops);
  FillLayout<uint64_t>(loops);
  FillLayout<Bytes16>(loops);
  loops.stream = Stream;
  loops.index_range[Index(DType::kInt32)] = RangeOfIndices<int32_t>;
  loops.index_range[Index(DType::kInt64)] = RangeOfIndices<int64_t>;
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
