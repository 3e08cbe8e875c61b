#include <math.h>

#include <type_traits>

#include "tensord/server/device/cpu/isa/lanes.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

// The maximum number of windows of a row that are computed at a time.
constexpr int kTile = 512;
// The number of taps along the last axis after which a loop checks whether the op must stop.
constexpr int64_t kTapsBetweenStops = 1024;

int64_t Larger(int64_t a, int64_t b) { return a > b ? a : b; }
int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// The windows [begin, begin + width) of one output row.
struct Tile {
  int64_t planes, rows;  // the indices on the first two axes
  int64_t begin;
  int width;
};

// Calls fn(tile) for the tiles of the output rows [begin, end).
template <typename Fn>
void ForTiles(const PoolWindows& windows, int64_t begin, int64_t end, Fn fn) {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t w = 0; w < windows.out[2]; w += kTile) {
      const int64_t left = windows.out[2] - w;
      fn(Tile{row / windows.out[1], row % windows.out[1], w,
              static_cast<int>(left < kTile ? left : kTile)});
    }
  }
}

// Calls fn(offset, first, n) for the taps of a tile's windows, in row-major order of the taps. The
// windows [first, first + n) of the tile have an element at the tap. That of the first window is at
// `offset` in the plane, and that of each next window is one stride further.
template <typename Fn>
void ForTaps(const PoolWindows& windows, const Tile& tile, Fn fn) {
  const int64_t outer[2] = {tile.planes, tile.rows};
  int64_t first[2], end[2], start[2];
  for (int a = 0; a < 2; ++a) {
    first[a] = windows.FirstTap(a, outer[a]);
    end[a] = windows.EndTap(a, outer[a]);
    start[a] = windows.Start(a, outer[a]);
  }
  // The taps along the last axis at which any window of the tile has an element.
  const int64_t first_tap = windows.FirstTap(2, tile.begin + tile.width - 1);
  const int64_t end_tap = windows.EndTap(2, tile.begin);
  for (int64_t d = first[0]; d < end[0]; ++d) {
    const int64_t plane = start[0] + d * windows.dilation[0];
    for (int64_t h = first[1]; h < end[1]; ++h) {
      if (LoopMustStop()) return;
      const int64_t row = start[1] + h * windows.dilation[1];
      const int64_t base = (plane * windows.in[1] + row) * windows.in[2];
      for (int64_t w = first_tap; w < end_tap; ++w) {
        if ((w - first_tap) % kTapsBetweenStops == kTapsBetweenStops - 1 && LoopMustStop()) return;
        const int64_t from = Larger(windows.FirstWindow(2, w), tile.begin);
        const int64_t to = Smaller(windows.EndWindow(2, w), tile.begin + tile.width);
        if (from >= to) continue;
        fn(base + windows.Start(2, from) + w * windows.dilation[2],
           static_cast<int>(from - tile.begin), static_cast<int>(to - from));
      }
    }
  }
}

// ---------------------------------------------------------------- max

// Calls fn(std::integral_constant) with the stride of the last axis if loops are compiled for it,
// and otherwise with 0.
template <typename Fn>
void WithStride(int64_t stride, Fn fn) {
  if (stride == 1) return fn(std::integral_constant<int, 1>());
  if (stride == 2) return fn(std::integral_constant<int, 2>());
  fn(std::integral_constant<int, 0>());
}

// Sets best[i] to the larger of best[i] and x[i stride], and at[i] to its index: if it is the
// latter, first + i stride. Of equal elements, and of NaNs, keeps the first one. kStride is the
// stride, or 0.
template <int kStride, typename T, typename Index>
void TakeLarger(const T* __restrict x, Index stride, Index first, T* __restrict best,
                Index* __restrict at, int n) {
  if (kStride > 0) stride = kStride;
  for (int i = 0; i < n; ++i) {
    const T value = x[i * stride], held = best[i];
    const bool larger = (value > held) | ((value != value) & (held == held));
    best[i] = larger ? value : held;
    at[i] = larger ? first + i * stride : at[i];
  }
}

// Sets the indices of windows that have no element above -inf.
template <typename T, typename Index>
void SetIndicesOfLowest(const PoolWindows& windows, const Tile& tile, Index* at) {
  const int64_t outer[2] = {tile.planes, tile.rows};
  for (int i = 0; i < tile.width; ++i) {
    if (at[i] >= 0) continue;
    int64_t position = 0;
    for (int a = 0; a < 3 && position >= 0; ++a) {
      const int64_t o = a < 2 ? outer[a] : tile.begin + i;
      const int64_t tap = windows.FirstTap(a, o);
      const bool has_element = tap < windows.EndTap(a, o);
      position = has_element
                     ? position * windows.in[a] + windows.Start(a, o) + tap * windows.dilation[a]
                     : -1;
    }
    at[i] = static_cast<Index>(position);
  }
}

template <typename T, typename Index>
void MaxRows(const PoolWindows& windows, const T* x, int64_t begin, int64_t end, T* y,
             int64_t* indices) {
  const auto stride = static_cast<Index>(windows.stride[2]);
  T best[kTile];
  Index at[kTile];
  ForTiles(windows, begin, end, [&](const Tile& tile) {
    for (int i = 0; i < tile.width; ++i) {
      best[i] = -static_cast<T>(HUGE_VAL);
      at[i] = -1;
    }
    WithStride(stride, [&](auto constant) {
      ForTaps(windows, tile, [&](int64_t offset, int first, int n) {
        TakeLarger<decltype(constant)::value>(x + offset, stride, static_cast<Index>(offset),
                                              best + first, at + first, n);
      });
    });
    SetIndicesOfLowest<T>(windows, tile, at);
    const int64_t to = (tile.planes * windows.out[1] + tile.rows) * windows.out[2] + tile.begin;
    memcpy(y + to, best, tile.width * sizeof(T));
    for (int i = 0; i < tile.width; ++i) indices[to + i] = at[i];
  });
}

template <typename T>
void Max(const PoolGeometry& geometry, const void* x, int64_t begin, int64_t end, void* y,
         int64_t* indices) {
  const PoolWindows windows(geometry);
  // For float32, 32-bit indices fill as many vectors as the elements.
  constexpr int64_t kMaxNarrow = INT32_MAX;
  if (sizeof(T) == 4 && windows.in_elements() <= kMaxNarrow &&
      windows.stride[2] * kTile <= kMaxNarrow - windows.in_elements()) {
    MaxRows<T, int32_t>(windows, static_cast<const T*>(x), begin, end, static_cast<T*>(y), indices);
  } else {
    MaxRows<T, int64_t>(windows, static_cast<const T*>(x), begin, end, static_cast<T*>(y), indices);
  }
}

template <typename T>
void MaxBackward(const PoolGeometry& geometry, const void* g_data, const int64_t* indices,
                 void* gx_data) {
  const PoolWindows windows(geometry);
  const auto* g = static_cast<const T*>(g_data);
  auto* gx = static_cast<T*>(gx_data);
  const auto size = static_cast<uint64_t>(windows.in_elements());
  memset(gx, 0, size * sizeof(T));
  InPieces(windows.out_elements(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<uint64_t>(indices[i]);
      if (at < size) gx[at] += g[i];
    }
  });
}

// ---------------------------------------------------------------- avg

// Calls fn(tile, divisors) for the tiles of the output rows [begin, end), with the divisor of each
// window.
template <typename T, typename Fn>
void ForAveragedTiles(const PoolWindows& windows, bool count_padding, int64_t divisor,
                      int64_t begin, int64_t end, Fn fn) {
  T divisors[kTile];
  ForTiles(windows, begin, end, [&](const Tile& tile) {
    if (divisor != 0) {
      for (int i = 0; i < tile.width; ++i) divisors[i] = static_cast<T>(divisor);
    } else {
      const int64_t rows =
          windows.Count(0, tile.planes, count_padding) * windows.Count(1, tile.rows, count_padding);
      for (int i = 0; i < tile.width; ++i) {
        divisors[i] = static_cast<T>(rows * windows.Count(2, tile.begin + i, count_padding));
      }
    }
    fn(tile, divisors);
  });
}

// sum[i] += x[i stride]. kStride is the stride, or 0.
template <int kStride, typename T>
void AddTap(const T* __restrict x, int64_t stride, T* __restrict sum, int n) {
  if (kStride > 0) stride = kStride;
  for (int i = 0; i < n; ++i) sum[i] += x[i * stride];
}
// x[i stride] += share[i].
template <int kStride, typename T>
void SpreadTap(const T* __restrict share, int64_t stride, T* __restrict x, int n) {
  if (kStride > 0) stride = kStride;
  for (int i = 0; i < n; ++i) x[i * stride] += share[i];
}

template <typename T>
void Avg(const PoolGeometry& geometry, bool count_padding, int64_t divisor, const void* x_data,
         int64_t begin, int64_t end, void* y_data) {
  const PoolWindows windows(geometry);
  const auto* x = static_cast<const T*>(x_data);
  const int64_t stride = windows.stride[2];
  T sum[kTile];
  ForAveragedTiles<T>(windows, count_padding, divisor, begin, end,
                      [&](const Tile& tile, const T* divisors) {
                        for (int i = 0; i < tile.width; ++i) sum[i] = T{0};
                        WithStride(stride, [&](auto constant) {
                          ForTaps(windows, tile, [&](int64_t offset, int first, int n) {
                            AddTap<decltype(constant)::value>(x + offset, stride, sum + first, n);
                          });
                        });
                        const int64_t row = tile.planes * windows.out[1] + tile.rows;
                        T* y = static_cast<T*>(y_data) + row * windows.out[2] + tile.begin;
                        for (int i = 0; i < tile.width; ++i) y[i] = sum[i] / divisors[i];
                      });
}

template <typename T>
void AvgBackward(const PoolGeometry& geometry, bool count_padding, int64_t divisor,
                 const void* g_data, void* gx_data) {
  const PoolWindows windows(geometry);
  auto* gx = static_cast<T*>(gx_data);
  const int64_t stride = windows.stride[2];
  memset(gx, 0, windows.in_elements() * sizeof(T));
  T share[kTile];
  ForAveragedTiles<T>(
      windows, count_padding, divisor, 0, windows.out[0] * windows.out[1],
      [&](const Tile& tile, const T* divisors) {
        const int64_t row = tile.planes * windows.out[1] + tile.rows;
        const T* g = static_cast<const T*>(g_data) + row * windows.out[2] + tile.begin;
        for (int i = 0; i < tile.width; ++i) share[i] = g[i] / divisors[i];
        WithStride(stride, [&](auto constant) {
          ForTaps(windows, tile, [&](int64_t offset, int first, int n) {
            SpreadTap<decltype(constant)::value>(share + first, stride, gx + offset, n);
          });
        });
      });
}

template <typename T>
void FillPool(NetworkLoops& loops) {
  loops.pool[kIndexOf<T>] = {Max<T>, MaxBackward<T>, Avg<T>, AvgBackward<T>};
}

}  // namespace

void FillPoolLoops(NetworkLoops& loops) {
  FillPool<float>(loops);
  FillPool<double>(loops);
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
