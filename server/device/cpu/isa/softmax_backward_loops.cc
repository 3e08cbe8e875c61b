#include "tensord/server/device/cpu/isa/vector_libm.h"

// vector_libm.h comes before the first use of libm's functions.
#include "tensord/server/device/cpu/isa/lanes.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

// gx[j] = g[j] - exp(y[j]) sum[j] for one block.
template <typename T>
void LogGradientBlock(const T* g, const T* y, const T* sum, T* gx) {
  T exp[kVectorLibmBlock];
  for (int j = 0; j < kVectorLibmBlock; ++j) exp[j] = math::Exp(y[j]);
  for (int j = 0; j < kVectorLibmBlock; ++j) gx[j] = g[j] - exp[j] * sum[j];
}

// Does the same for n elements. With `one_sum`, `sum` has one block of equal elements. Otherwise it
// has at least n elements, in whole blocks.
template <typename T>
void LogGradient(const T* g, const T* y, const T* sum, bool one_sum, T* gx, int64_t n) {
  constexpr int kBlock = kVectorLibmBlock;
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    LogGradientBlock(g + i, y + i, one_sum ? sum : sum + i, gx + i);
  }
  if (i == n) return;
  T g_block[kBlock] = {}, y_block[kBlock] = {}, out[kBlock];
  memcpy(g_block, g + i, (n - i) * sizeof(T));
  memcpy(y_block, y + i, (n - i) * sizeof(T));
  LogGradientBlock(g_block, y_block, one_sum ? sum : sum + i, out);
  memcpy(gx + i, out, (n - i) * sizeof(T));
}

template <typename T, bool kLog>
void Row(const void* g_data, const void* y_data, void* gx_data, int64_t n) {
  const auto* g = static_cast<const T*>(g_data);
  const auto* y = static_cast<const T*>(y_data);
  auto* gx = static_cast<T*>(gx_data);
  const auto sum = static_cast<T>(SumTerms<T>(n, [&](int64_t i, int64_t count) {
    return kLog ? Load(g + i, count) : Load(g + i, count) * Load(y + i, count);
  }));
  if constexpr (kLog) {
    T sums[kVectorLibmBlock];
    for (T& element : sums) element = sum;
    InPieces(n, 1, [&](int64_t begin, int64_t end) {
      LogGradient(g + begin, y + begin, sums, true, gx + begin, end - begin);
    });
  } else {
    ForVectors<T>(n, [&](int64_t i, int64_t count) {
      Store(gx + i, Load(y + i, count) * (Load(g + i, count) - Broadcast(sum)), count);
    });
  }
}

template <typename T, bool kLog>
void Columns(const void* g_data, const void* y_data, void* gx_data, int64_t rows,
             int64_t row_stride, int64_t cols) {
  ForColumnTiles(cols, [&](int64_t c, int width) {
    const T* g = static_cast<const T*>(g_data) + c;
    const T* y = static_cast<const T*>(y_data) + c;
    T* gx = static_cast<T*>(gx_data) + c;
    double total[kTileColumns] = {};
    InPieces(rows, width, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin * row_stride; r < end * row_stride; r += row_stride) {
        for (int j = 0; j < width; ++j) total[j] += kLog ? g[r + j] : g[r + j] * y[r + j];
      }
    });
    T sum[kTileColumns];
    for (int j = 0; j < kTileColumns; ++j) sum[j] = static_cast<T>(total[j]);
    InPieces(rows, width, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin * row_stride; r < end * row_stride; r += row_stride) {
        if constexpr (kLog) {
          LogGradient(g + r, y + r, sum, false, gx + r, width);
        } else {
          for (int j = 0; j < width; ++j) gx[r + j] = y[r + j] * (g[r + j] - sum[j]);
        }
      }
    });
  });
}

template <typename T>
void FillSoftmaxBackward(NetworkLoops& loops) {
  loops.softmax_backward[kIndexOf<T>] = {Row<T, false>, Columns<T, false>};
  loops.log_softmax_backward[kIndexOf<T>] = {Row<T, true>, Columns<T, true>};
}

}  // namespace

void FillSoftmaxBackwardLoops(NetworkLoops& loops) {
  FillSoftmaxBackward<float>(loops);
  FillSoftmaxBackward<double>(loops);
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
