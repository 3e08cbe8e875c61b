#include <math.h>

#include <utility>

#include "tensord/server/device/cpu/isa/lanes.h"

// The compiler fuses products and sums in this file, so the instruction sets round differently.
namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

#if defined(__AVX512F__)
constexpr int kNativeBytes = 64;
#elif defined(__AVX__)
constexpr int kNativeBytes = 32;
#else
constexpr int kNativeBytes = 16;
#endif

// A vector that fits a register of the level.
template <typename T>
struct NativeOf {
  typedef T type __attribute__((vector_size(kNativeBytes)));
};
template <typename T>
using Native = typename NativeOf<T>::type;
template <typename T>
using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
template <typename T>
inline constexpr int kLanes = kNativeBytes / sizeof(T);

template <typename T>
Native<T> LoadNative(const T* x) {
  Native<T> lanes;
  memcpy(&lanes, x, sizeof(lanes));
  return lanes;
}
template <typename T>
void StoreNative(T* y, Native<T> lanes) {
  memcpy(y, &lanes, sizeof(lanes));
}
template <typename T>
Native<T> Same(T value) {
  return value - Native<T>{};
}
template <typename T>
constexpr T kLowest = -static_cast<T>(HUGE_VAL);

// ---------------------------------------------------------------- products

// c = a·b, or c = diag(factors)·c + a·b if `add`, where null factors are ones. a is (m, k) with any
// strides, b is (k, n) and c is (m, n). n is a multiple of kAttentionAlignment bytes.
template <typename T>
struct Product {
  int64_t m, n, k;
  const T* a;
  int64_t a_row, a_col;
  const T* b;
  int64_t b_row;
  T* c;
  int64_t c_row;
  bool add;
  const T* factors;
};

template <typename T, int kRows, int kVectors>
void MultiplyTile(const Product<T>& p, int64_t row, int64_t col) {
  constexpr int kWidth = kLanes<T>;
  const T* a = p.a + row * p.a_row;
  const T* b = p.b + col;
  T* c = p.c + row * p.c_row + col;
  Native<T> sum[kRows][kVectors] = {};
  if (p.add) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const T factor = p.factors == nullptr ? T{1} : p.factors[row + r];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = factor * LoadNative(c + r * p.c_row + v * kWidth);
      }
    }
  }
  for (int64_t k = 0; k < p.k; ++k) {
    Native<T> of_b[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) of_b[v] = LoadNative(b + v * kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const T x = a[r * p.a_row];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] += x * of_b[v];
    }
    a += p.a_col;
    b += p.b_row;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) StoreNative(c + r * p.c_row + v * kWidth, sum[r][v]);
  }
}

// The accumulators of 6 rows leave registers for a row of b and an element of a.
constexpr int kMaxTileVectors = kNativeBytes == 64 ? 4 : 2;

template <typename T, int kVectors>
void MultiplyColumns(const Product<T>& p, int64_t col) {
  int64_t row = 0;
  for (; row + 6 <= p.m; row += 6) MultiplyTile<T, 6, kVectors>(p, row, col);
  if (row + 4 <= p.m) {
    MultiplyTile<T, 4, kVectors>(p, row, col);
    row += 4;
  }
  if (row + 2 <= p.m) {
    MultiplyTile<T, 2, kVectors>(p, row, col);
    row += 2;
  }
  if (row < p.m) MultiplyTile<T, 1, kVectors>(p, row, col);
}

template <typename T>
void Multiply(const Product<T>& p) {
  int64_t col = 0, vectors = p.n / kLanes<T>;
  int64_t tiles = (vectors + kMaxTileVectors - 1) / kMaxTileVectors;
  for (; tiles > 0; --tiles) {
    const int64_t width = (vectors + tiles - 1) / tiles;
    if constexpr (kMaxTileVectors == 4) {
      if (width == 4) MultiplyColumns<T, 4>(p, col);
      if (width == 3) MultiplyColumns<T, 3>(p, col);
    }
    if (width == 2) MultiplyColumns<T, 2>(p, col);
    if (width == 1) MultiplyColumns<T, 1>(p, col);
    col += width * kLanes<T>;
    vectors -= width;
  }
}

// ---------------------------------------------------------------- the exponential function

template <typename T>
struct ExpNumbers;
template <>
struct ExpNumbers<float> {
  static constexpr float kShift = 0x1.8p23f, kLowest = -86.9f, kLargest = 88.722839f;
  static constexpr float kLn2High = 0x1.62ep-1f, kLn2Low = 0x1.0bfbe8p-15f;
  static constexpr int kMantissaBits = 23;
  static constexpr float kTerms[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24,
                                     1.0f / 6,    1.0f / 2,   1.0f,       1.0f};
};
template <>
struct ExpNumbers<double> {
  static constexpr double kShift = 0x1.8p52, kLowest = -707.0, kLargest = 709.782712893384;
  static constexpr double kLn2High = 0x1.62e42fefa38p-1, kLn2Low = 0x1.ef35793c7673p-45;
  static constexpr int kMantissaBits = 52;
  static constexpr double kTerms[] = {1.0 / 6227020800,
                                      1.0 / 479001600,
                                      1.0 / 39916800,
                                      1.0 / 3628800,
                                      1.0 / 362880,
                                      1.0 / 40320,
                                      1.0 / 5040,
                                      1.0 / 720,
                                      1.0 / 120,
                                      1.0 / 24,
                                      1.0 / 6,
                                      1.0 / 2,
                                      1.0,
                                      1.0};
};

// Returns exp(x), with an error of about a unit in the last place. Results near the smallest normal
// number, and below it, are 0.
template <typename T>
Native<T> Exp(Native<T> x) {
  using Numbers = ExpNumbers<T>;
  typedef Bits<T> BitVector __attribute__((vector_size(kNativeBytes)));
  // n is x / ln 2, rounded: the last bits of `shifted`. |r| is at most ln 2 / 2.
  const Native<T> shifted = x * static_cast<T>(M_LOG2E) + Numbers::kShift;
  const Native<T> n = shifted - Numbers::kShift;
  const Native<T> r = (x - n * Numbers::kLn2High) - n * Numbers::kLn2Low;
  Native<T> sum = Same(Numbers::kTerms[0]);
  constexpr int kTermCount = sizeof(Numbers::kTerms) / sizeof(T);
  for (int i = 1; i < kTermCount; ++i) sum = sum * r + Numbers::kTerms[i];
  // Adds n to the exponent.
  const BitVector bits = (BitVector)sum + ((BitVector)shifted << Numbers::kMantissaBits);
  Native<T> y = (Native<T>)bits;
  y = x < Numbers::kLowest ? Same(T{0}) : y;
  y = x > Numbers::kLargest ? Same(-kLowest<T>) : y;
  return x == x ? y : x;
}

// ---------------------------------------------------------------- blocks of scores

template <typename T>
void Transpose(const void* x_data, int64_t rows, int64_t cols, int64_t stride, double factor,
               int64_t lanes, void* y_data) {
  const auto* x = static_cast<const T*>(x_data);
  auto* y = static_cast<T*>(y_data);
  const T scale = static_cast<T>(factor);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) y[c * lanes + r] = x[r * stride + c] * scale;
  }
  for (int64_t c = 0; c < cols && rows < lanes; ++c) {
    memset(y + c * lanes + rows, 0, (lanes - rows) * sizeof(T));
  }
}

// Returns the score at `at`, with its bias, or -inf from the lane's limit on. `key` is its key.
template <typename T, bool kBias, bool kLimits>
Native<T> Score(const T* scores, const T* bias, int64_t at, T key, Native<T> limit) {
  Native<T> x = LoadNative(scores + at);
  if constexpr (kBias) x += LoadNative(bias + at);
  if constexpr (kLimits) x = Same(key) < limit ? x : Same(kLowest<T>);
  return x;
}

// Calls fn(Score function) with the variant that the step needs.
template <typename T, typename Fn>
void WithScore(const AttentionTile& tile, Fn fn) {
  if (tile.bias != nullptr) {
    fn(Score<T, true, false>);
  } else if (tile.limits != nullptr) {
    fn(Score<T, false, true>);
  } else {
    fn(Score<T, false, false>);
  }
}

// Updates max and sum of some lanes, which cover the keys before, with the keys of this block.
// Replaces the scores by weights relative to max. Returns the factor of the sum before.
template <typename T, typename ScoreFn>
Native<T> UpdateLanes(const AttentionTile& tile, int64_t lane, ScoreFn score, T* max_at,
                      T* sum_at) {
  T* const scores = static_cast<T*>(tile.scores) + lane;
  const T* bias = static_cast<const T*>(tile.bias);
  if (bias != nullptr) bias += lane;
  const Native<T> limit =
      tile.limits == nullptr ? Native<T>{} : LoadNative(static_cast<const T*>(tile.limits) + lane);
  const Native<T> before = LoadNative(max_at + lane);
  Native<T> max = before;
  T key = T{0};
  for (int64_t j = 0; j < tile.keys; ++j, key += T{1}) {
    const Native<T> x = score(scores, bias, j * tile.lanes, key, limit);
    if (tile.bias != nullptr || tile.limits != nullptr) StoreNative(scores + j * tile.lanes, x);
    max = x > max ? x : max;
  }
  const Native<T> offset = max == kLowest<T> ? Same(T{0}) : max;
  Native<T> sum = {};
  for (int64_t j = 0; j < tile.keys; ++j) {
    const Native<T> weight = Exp<T>(LoadNative(scores + j * tile.lanes) - offset);
    sum += weight;
    StoreNative(scores + j * tile.lanes, weight);
  }
  const Native<T> factor = Exp<T>(before - offset);
  StoreNative(sum_at + lane, LoadNative(sum_at + lane) * factor + sum);
  StoreNative(max_at + lane, max);
  return factor;
}

template <typename T>
void ScaleAll(T* x, const T* factors, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes<T>) {
    StoreNative(x + i, LoadNative(x + i) * LoadNative(factors + i));
  }
}

// Sets the block's scores to k·qᵀ.
template <typename T>
void ComputeScores(const AttentionTile& tile) {
  Multiply<T>({tile.keys, tile.lanes, tile.depth, static_cast<const T*>(tile.k), tile.k_stride, 1,
               static_cast<const T*>(tile.qt), tile.lanes, static_cast<T*>(tile.scores), tile.lanes,
               false, nullptr});
}

template <typename T>
void Forward(const AttentionTile& tile, const AttentionSums& sums) {
  T factors[kAttentionTileBytes / sizeof(T)];
  auto* scores = static_cast<T*>(tile.scores);
  ComputeScores<T>(tile);
  WithScore<T>(tile, [&](auto score) {
    for (int64_t lane = 0; lane < tile.lanes; lane += kLanes<T>) {
      StoreNative(factors + lane, UpdateLanes<T>(tile, lane, score, static_cast<T*>(sums.max),
                                                 static_cast<T*>(sums.sum)));
    }
  });
  if (tile.factors != nullptr) {
    ScaleAll(scores, static_cast<const T*>(tile.factors), tile.keys * tile.lanes);
  }
  Multiply<T>({tile.rows, sums.cols, tile.keys, scores, 1, tile.lanes,
               static_cast<const T*>(tile.v), tile.v_stride, static_cast<T*>(sums.values),
               sums.cols, !sums.first, factors});
}

template <typename T>
void Finish(const AttentionSums& sums, int64_t rows, int64_t value_depth, void* o_data,
            void* lse_data) {
  const auto *max = static_cast<const T*>(sums.max), *sum = static_cast<const T*>(sums.sum);
  const auto* values = static_cast<const T*>(sums.values);
  auto *o = static_cast<T*>(o_data), *lse = static_cast<T*>(lse_data);
  for (int64_t r = 0; r < rows; ++r) {
    const T factor = sum[r] == T{0} ? T{0} : T{1} / sum[r];
    const T* from = values + r * sums.cols;
    T* to = o + r * value_depth;
    for (int64_t e = 0; e < value_depth; ++e) to[e] = from[e] * factor;
    lse[r] = static_cast<T>(static_cast<double>(max[r]) + log(static_cast<double>(sum[r])));
  }
}

// ---------------------------------------------------------------- few rows

// Returns which lane of (a, b) a shuffle moves to lane i. After the shuffle, each run of 2 kRun
// lanes has kRun lanes of a, and then kRun lanes of b.
template <typename T, int kRun>
constexpr int ShuffledLane(int i) {
  const int vector = i % (2 * kRun) < kRun ? 0 : kLanes<T>;
  return vector + i / (2 * kRun) * 2 * kRun + i % kRun;
}

// Returns the sums of pairs of runs of kRun lanes: from a and from b in turn.
template <typename T, int kRun, int... kLane>
Native<T> AddRuns(Native<T> a, Native<T> b, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(a, b, ShuffledLane<T, kRun>(kLane)...) +
         __builtin_shufflevector(a, b, (ShuffledLane<T, kRun>(kLane) + kRun)...);
}

// Returns the sum of the lanes of x[i] in lane i. `kCount` vectors are left, in which runs of
// kLanes / kCount lanes are to be added.
template <typename T, int kCount>
Native<T> SumOfEach(Native<T>* x) {
  if constexpr (kCount == 1) {
    return x[0];
  } else {
    constexpr int kHalf = kCount / 2;
    constexpr auto kEach = std::make_integer_sequence<int, kLanes<T>>();
#pragma GCC unroll 16
    for (int i = 0; i < kHalf; ++i) x[i] = AddRuns<T, kHalf>(x[i], x[i + kHalf], kEach);
    return SumOfEach<T, kHalf>(x);
  }
}

// scores[j] = q·k[j] for `count` keys, at most kLanes.
template <typename T>
void DotsOfKeys(const T* q, const T* k, int64_t k_stride, int64_t cols, int64_t count, T* scores) {
  constexpr int kWidth = kLanes<T>;
  Native<T> sum[kWidth] = {};
  if (count == kWidth) {
    for (int64_t e = 0; e < cols; e += kWidth) {
      const Native<T> of_q = LoadNative(q + e);
#pragma GCC unroll 16
      for (int j = 0; j < kWidth; ++j) sum[j] += of_q * LoadNative(k + j * k_stride + e);
    }
  } else {
    for (int64_t j = 0; j < count; ++j) {
      Native<T> of_key = {};
      for (int64_t e = 0; e < cols; e += kWidth) {
        of_key += LoadNative(q + e) * LoadNative(k + j * k_stride + e);
      }
      sum[j] = of_key;
    }
  }
  StoreNative(scores, SumOfEach<T, kWidth>(sum));
}

template <typename T>
void ForwardRows(const AttentionTile& tile, const AttentionSums& sums) {
  constexpr int kWidth = kLanes<T>;
  T factors[kMaxAttentionFewRows];
  auto* const scores = static_cast<T*>(tile.scores);
  auto *max_at = static_cast<T*>(sums.max), *sum_at = static_cast<T*>(sums.sum);
  const auto *q = static_cast<const T*>(tile.qt), *k = static_cast<const T*>(tile.k);
  for (int64_t j = 0; j < tile.keys; j += kWidth) {
    const int64_t count = tile.keys - j < kWidth ? tile.keys - j : kWidth;
    for (int64_t r = 0; r < tile.rows; ++r) {
      DotsOfKeys(q + r * tile.depth, k + j * tile.k_stride, tile.k_stride, tile.depth, count,
                 scores + r * tile.lanes + j);
    }
  }
  for (int64_t r = 0; r < tile.rows; ++r) {
    T* const row = scores + r * tile.lanes;
    int64_t keys = tile.keys;
    if (tile.bias != nullptr) {
      const T* bias = static_cast<const T*>(tile.bias) + r * tile.lanes;
      for (int64_t j = 0; j < keys; ++j) row[j] += bias[j];
    }
    if (tile.limits != nullptr) {
      const auto limit = static_cast<int64_t>(static_cast<const T*>(tile.limits)[r]);
      keys = limit < keys ? limit : keys;
    }
    for (int64_t j = keys; j < tile.lanes; ++j) row[j] = kLowest<T>;
    Native<T> largest = Same(max_at[r]);
    for (int64_t j = 0; j < tile.lanes; j += kWidth) {
      const Native<T> x = LoadNative(row + j);
      largest = x > largest ? x : largest;
    }
    T max = largest[0];
    for (int j = 1; j < kWidth; ++j) max = largest[j] > max ? largest[j] : max;
    const T offset = max == kLowest<T> ? T{0} : max;
    Native<T> sum = {};
    for (int64_t j = 0; j < tile.lanes; j += kWidth) {
      const Native<T> weight = Exp<T>(LoadNative(row + j) - offset);
      sum += weight;
      StoreNative(row + j, weight);
    }
    T total = T{0};
    for (int j = 0; j < kWidth; ++j) total += sum[j];
    factors[r] = Exp<T>(Same(max_at[r] - offset))[0];
    sum_at[r] = sum_at[r] * factors[r] + total;
    max_at[r] = max;
  }
  if (tile.factors != nullptr) {
    ScaleAll(scores, static_cast<const T*>(tile.factors), tile.rows * tile.lanes);
  }
  Multiply<T>({tile.rows, sums.cols, tile.keys, scores, tile.lanes, 1,
               static_cast<const T*>(tile.v), tile.v_stride, static_cast<T*>(sums.values),
               sums.cols, !sums.first, factors});
}

template <typename T>
void Merge(const AttentionSums& sums, const AttentionSums& more, int64_t rows) {
  auto *max = static_cast<T*>(sums.max), *sum = static_cast<T*>(sums.sum);
  const auto *max_of_more = static_cast<const T*>(more.max),
             *sum_of_more = static_cast<const T*>(more.sum);
  for (int64_t r = 0; r < rows; ++r) {
    const T largest = max_of_more[r] > max[r] ? max_of_more[r] : max[r];
    const T offset = largest == kLowest<T> ? T{0} : largest;
    const T factor = Exp<T>(Same(max[r] - offset))[0];
    const T factor_of_more = Exp<T>(Same(max_of_more[r] - offset))[0];
    max[r] = largest;
    sum[r] = sum[r] * factor + sum_of_more[r] * factor_of_more;
    T* to = static_cast<T*>(sums.values) + r * sums.cols;
    const T* from = static_cast<const T*>(more.values) + r * sums.cols;
    for (int64_t e = 0; e < sums.cols; ++e) to[e] = to[e] * factor + from[e] * factor_of_more;
  }
}

// ---------------------------------------------------------------- gradients

template <typename T>
void Dots(const void* a_data, const void* b_data, int64_t rows, int64_t cols, void* sums_data) {
  constexpr int kWidth = kLanes<T>;
  const auto *a = static_cast<const T*>(a_data), *b = static_cast<const T*>(b_data);
  for (int64_t r = 0; r < rows; ++r, a += cols, b += cols) {
    Native<T> sum = {};
    int64_t c = 0;
    for (; c + kWidth <= cols; c += kWidth) sum += LoadNative(a + c) * LoadNative(b + c);
    T total = T{0};
    for (int j = 0; j < kWidth; ++j) total += sum[j];
    for (; c < cols; ++c) total += a[c] * b[c];
    static_cast<T*>(sums_data)[r] = total;
  }
}

// Replaces the scores of some lanes by the weights that the values had, and the gradients of the
// weights by those of the scores, times the scale.
template <typename T, typename ScoreFn>
void DifferentiateLanes(const AttentionTile& tile, const AttentionGradients& of, int64_t lane,
                        ScoreFn score) {
  T* const scores = static_cast<T*>(tile.scores) + lane;
  T* const gradients = static_cast<T*>(of.scores) + lane;
  const auto* bias = static_cast<const T*>(tile.bias);
  if (bias != nullptr) bias += lane;
  const auto* factors = static_cast<const T*>(tile.factors);
  if (factors != nullptr) factors += lane;
  const Native<T> limit =
      tile.limits == nullptr ? Native<T>{} : LoadNative(static_cast<const T*>(tile.limits) + lane);
  const Native<T> lse = LoadNative(static_cast<const T*>(of.lse) + lane);
  const Native<T> delta = LoadNative(static_cast<const T*>(of.delta) + lane);
  const T scale = static_cast<T>(of.scale);
  T key = T{0};
  for (int64_t j = 0; j < tile.keys; ++j, key += T{1}) {
    const int64_t at = j * tile.lanes;
    Native<T> weight = Exp<T>(score(scores, bias, at, key, limit) - lse);
    weight = lse == kLowest<T> ? Same(T{0}) : weight;
    Native<T> gradient = LoadNative(gradients + at);
    if (factors == nullptr) {
      StoreNative(scores + at, weight);
    } else {
      const Native<T> factor = LoadNative(factors + at);
      StoreNative(scores + at, weight * factor);
      gradient *= factor;
    }
    StoreNative(gradients + at, weight * (gradient - delta) * scale);
  }
}

template <typename T>
void Backward(const AttentionTile& tile, const AttentionGradients& of) {
  const auto* scores = static_cast<const T*>(tile.scores);
  const auto* gradients = static_cast<const T*>(of.scores);
  ComputeScores<T>(tile);
  Multiply<T>({tile.keys, tile.lanes, of.value_depth, static_cast<const T*>(tile.v), tile.v_stride,
               1, static_cast<const T*>(of.gt), tile.lanes, static_cast<T*>(of.scores), tile.lanes,
               false, nullptr});
  WithScore<T>(tile, [&](auto score) {
    for (int64_t lane = 0; lane < tile.lanes; lane += kLanes<T>) {
      DifferentiateLanes<T>(tile, of, lane, score);
    }
  });
  if (of.gv != nullptr) {
    Multiply<T>({tile.keys, of.v_cols, tile.rows, scores, tile.lanes, 1,
                 static_cast<const T*>(of.g), of.g_stride, static_cast<T*>(of.gv), of.v_cols, true,
                 nullptr});
  }
  if (of.gk != nullptr) {
    Multiply<T>({tile.keys, of.k_cols, tile.rows, gradients, tile.lanes, 1,
                 static_cast<const T*>(of.q), of.q_stride, static_cast<T*>(of.gk), of.k_cols, true,
                 nullptr});
  }
  if (of.gq != nullptr) {
    Multiply<T>({tile.rows, of.k_cols, tile.keys, gradients, 1, tile.lanes,
                 static_cast<const T*>(tile.k), tile.k_stride, static_cast<T*>(of.gq), of.k_cols,
                 true, nullptr});
  }
}

template <typename T>
void FillAttention(NetworkLoops& loops) {
  loops.attention[kIndexOf<T>] = {Transpose<T>, Forward<T>, ForwardRows<T>, Merge<T>,
                                  Finish<T>,    Dots<T>,    Backward<T>};
}

}  // namespace

void FillAttentionLoops(NetworkLoops& loops) {
  FillAttention<float>(loops);
  FillAttention<double>(loops);
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
