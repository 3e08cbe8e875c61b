// Divides large matrix products into tiles, between which a thread checks whether its op must stop.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {

struct TileSize {
  int64_t m, n, k;

  // Returns the number of multiplications. An int64_t could overflow.
  double products() const {
    return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

// A part of (M,K)·(K,N): the first row, column and k, and their numbers.
struct Tile {
  int64_t row, col, depth;
  TileSize size;
};

// Returns the length of the parts if [0, n) is divided evenly into parts of at most `max`. Lengths
// of 128 and more are multiples of 64, except that of the last part.
inline int64_t EvenTileLength(int64_t n, int64_t max) {
  const int64_t parts = (n + max - 1) / max;
  const int64_t length = (n + parts - 1) / parts;
  return length < 128 ? length : std::min(max, (length + 63) / 64 * 64);
}

// Calls fn(const Tile&) for tiles that together are the product `whole`. The tiles have about the
// size `max`; a product that isn't larger is one tile. The tiles of the same rows and columns come
// one after another, in order of k. If the op must stop, returns early.
template <typename Fn>
void ForEachTile(const TileSize& whole, const TileSize& max, Fn fn) {
  if (whole.products() <= max.products()) return fn(Tile{0, 0, 0, whole});
  const TileSize part = {EvenTileLength(whole.m, max.m), EvenTileLength(whole.n, max.n),
                         EvenTileLength(whole.k, max.k)};
  for (int64_t row = 0; row < whole.m; row += part.m) {
    for (int64_t col = 0; col < whole.n; col += part.n) {
      for (int64_t depth = 0; depth < whole.k; depth += part.k) {
        if (MustStop()) return;
        fn(Tile{row,
                col,
                depth,
                {std::min(part.m, whole.m - row), std::min(part.n, whole.n - col),
                 std::min(part.k, whole.k - depth)}});
      }
    }
  }
}

}  // namespace tensord::server::cpu
