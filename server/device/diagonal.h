// The diagonals of a row-major matrix.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tensord::server {

// The elements of a diagonal are `first` + i (columns + 1), 0 <= i < size.
struct Diagonal {
  int64_t first = 0;
  int64_t size = 0;
};

// Returns the elements [i, i + k].
inline Diagonal FindDiagonal(int64_t rows, int64_t columns, int64_t k) {
  if (k >= columns || k <= -rows) return {};
  if (k >= 0) return {k, std::min(rows, columns - k)};
  return {-k * columns, std::min(rows + k, columns)};
}

}  // namespace tensord::server
