// Vectors of 64 bytes, and sums over their lanes, for the loops of the network ops. Each level
// computes a lane by the same operations in the same order, so all levels give the same bits. Only
// files that are compiled once for each level may include this header.
#pragma once

#include <string.h>

#include "tensord/server/device/cpu/isa/fill.h"
#include "tensord/server/device/cpu/isa/network_loops.h"
#include "tensord/server/device/cpu/isa/pieces.h"

// The warning is about calls between files that are compiled for different levels. The functions
// with vectors as parameters are local to each level.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {

template <typename T>
struct VectorOf {
  typedef T type __attribute__((vector_size(64)));
};
template <typename T>
using Vector = typename VectorOf<T>::type;

template <typename T>
inline constexpr int kWidth = 64 / sizeof(T);

template <typename T>
Vector<T> Broadcast(T value) {
  return value - Vector<T>{};  // a difference with zero keeps the sign of a zero
}

// Loads the first `count` lanes, and sets the others to `otherwise`.
template <typename T>
Vector<T> Load(const T* x, int64_t count, T otherwise = T{0}) {
  Vector<T> lanes;
  if (count >= kWidth<T>) {
    memcpy(&lanes, x, sizeof(lanes));
    return lanes;
  }
  lanes = Broadcast(otherwise);
  memcpy(&lanes, x, count * sizeof(T));
  return lanes;
}

// Stores the first `count` lanes.
template <typename T>
void Store(T* y, Vector<T> lanes, int64_t count) {
  memcpy(y, &lanes, count >= kWidth<T> ? sizeof(lanes) : count * sizeof(T));
}

// Calls fn(i, count) for the vectors of [0, n). `count` is the number of their elements.
template <typename T, typename Fn>
void ForVectors(int64_t n, Fn fn) {
  InPieces(n, 1, [&](int64_t begin, int64_t end) {
    int64_t i = begin;
    for (; i + kWidth<T> <= end; i += kWidth<T>) fn(i, int64_t{kWidth<T>});
    if (i < end) fn(i, end - i);
  });
}

// Returns the pairwise sum of the lanes: first, lanes half a vector apart are added. The partial
// sums are vectors, because compilers would keep an array of lanes in memory.
template <typename T>
double Total(Vector<T> lanes) {
  if constexpr (sizeof(T) == sizeof(float)) {
    const auto low = __builtin_shufflevector(lanes, lanes, 0, 1, 2, 3, 4, 5, 6, 7);
    const auto high = __builtin_shufflevector(lanes, lanes, 8, 9, 10, 11, 12, 13, 14, 15);
    return Total<double>(__builtin_convertvector(low, Vector<double>) +
                         __builtin_convertvector(high, Vector<double>));
  } else {
    const auto halves = __builtin_shufflevector(lanes, lanes, 0, 1, 2, 3) +
                        __builtin_shufflevector(lanes, lanes, 4, 5, 6, 7);
    const auto quarters = __builtin_shufflevector(halves, halves, 0, 1) +
                          __builtin_shufflevector(halves, halves, 2, 3);
    return quarters[0] + quarters[1];
  }
}

// A term of several sums.
template <typename T, int kSums>
struct Terms {
  Vector<T> of[kSums];
};

// Adds the terms of the elements [0, n) to `sums`. term(i, count) returns the terms of the elements
// [i, i + count) as Terms<T, kSums>, with zeros in the lanes from `count` on. It is called once for
// each vector, in order. Terms of kBlockElements elements are added in T, and their sums in double.
template <typename T, int kSums, typename Term>
void AddTerms(int64_t n, double (&sums)[kSums], Term term) {
  constexpr int kUnroll = 4, kStep = kUnroll * kWidth<T>;
  static_assert(kBlockElements % kStep == 0 && kMaxLoopElements % kBlockElements == 0);
  InPieces(n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block += kBlockElements) {
      const int64_t stop = end - block < kBlockElements ? end : block + kBlockElements;
      Vector<T> acc[kSums][kUnroll] = {};
      int64_t i = block;
      for (; i + kStep <= stop; i += kStep) {
#pragma GCC unroll 4
        for (int k = 0; k < kUnroll; ++k) {
          const Terms<T, kSums> terms = term(i + k * kWidth<T>, int64_t{kWidth<T>});
          for (int s = 0; s < kSums; ++s) acc[s][k] += terms.of[s];
        }
      }
      for (; i < stop; i += kWidth<T>) {
        const int64_t count = stop - i < kWidth<T> ? stop - i : kWidth<T>;
        const Terms<T, kSums> terms = term(i, count);
        for (int s = 0; s < kSums; ++s) acc[s][0] += terms.of[s];
      }
      for (int s = 0; s < kSums; ++s) {
        sums[s] += Total<T>((acc[s][0] + acc[s][1]) + (acc[s][2] + acc[s][3]));
      }
    }
  });
}

// Returns the sum of term(i, count), which returns a vector.
template <typename T, typename Term>
double SumTerms(int64_t n, Term term) {
  double sums[1] = {0};
  AddTerms<T, 1>(n, sums,
                 [&](int64_t i, int64_t count) -> Terms<T, 1> { return {{term(i, count)}}; });
  return sums[0];
}

// The number of columns that a loop over columns computes at a time.
inline constexpr int kTileColumns = 256;

// Calls fn(column, width) for tiles that together are the columns [0, cols).
template <typename Fn>
void ForColumnTiles(int64_t cols, Fn fn) {
  for (int64_t c = 0; c < cols; c += kTileColumns) {
    if (c > 0 && LoopMustStop()) return;
    fn(c, static_cast<int>(cols - c < kTileColumns ? cols - c : kTileColumns));
  }
}

// The functions that add the loops of one file to a level's table.
void FillAdamLoops(NetworkLoops& loops);
void FillAttentionLoops(NetworkLoops& loops);
void FillBatchNormLoops(NetworkLoops& loops);
void FillCrossEntropyLoops(NetworkLoops& loops);
void FillLayerNormLoops(NetworkLoops& loops);
void FillPoolLoops(NetworkLoops& loops);
void FillRecurrentLoops(NetworkLoops& loops);
void FillSoftmaxBackwardLoops(NetworkLoops& loops);

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
