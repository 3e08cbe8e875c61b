#include "tensord/server/device/cpu/isa/vector_libm.h"

// vector_libm.h comes before the first use of libm's functions.
#include <math.h>

#include "tensord/server/device/cpu/isa/lanes.h"
#include "tensord/server/device/cpu/isa/reduce.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

constexpr int kBlock = kVectorLibmBlock;

// lane[j] += exp(x[j] - offset) for one block.
template <typename T>
void AddExpBlock(const T* __restrict x, T offset, T (&lane)[kBlock]) {
  T exp[kBlock];
  for (int j = 0; j < kBlock; ++j) exp[j] = math::Exp(x[j] - offset);
  for (int j = 0; j < kBlock; ++j) lane[j] += exp[j];
}

// Returns Σ exp(x - offset) over at most kBlockElements elements.
template <typename T>
double SumOfExp(const T* x, T offset, int64_t n) {
  T lane[kBlock] = {};
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) AddExpBlock(x + i, offset, lane);
  if (i < n) {
    T rest[kBlock];
    for (T& element : rest) element = -static_cast<T>(HUGE_VAL);
    memcpy(rest, x + i, (n - i) * sizeof(T));
    AddExpBlock(rest, offset, lane);
  }
  double sum = 0;
  for (int half = kBlock / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) lane[j] += lane[j + half];
  }
  return sum + lane[0];
}

// Reads each block once from memory. If a block has a larger element than those before, rescales
// the sum (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
template <typename T>
void LogSumOfRow(const T* x, int64_t n, T* max_out, T* log_sum) {
  const T lowest = -static_cast<T>(HUGE_VAL);
  T max = lowest;
  double sum = 0;
  InPieces(n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kBlockElements) {
      const int64_t length = end - i < kBlockElements ? end - i : kBlockElements;
      const T largest = ReduceRun<MaxPolicy<T>>(x + i, length, 0.0);
      if (!(largest <= max)) {  // larger, or NaN
        sum *= exp(static_cast<double>(max) - static_cast<double>(largest));
        max = largest;
      }
      if (max != lowest) sum += SumOfExp(x + i, max, length);
    }
  });
  *max_out = max;
  *log_sum = static_cast<T>(log(sum));
}

// Calls fn(exp, c) for blocks of a row of `width` elements, at most kTileColumns, where
// exp[j] = exp(x[c + j] - offset[c + j]). `offset` must have kTileColumns defined elements.
template <typename T, typename Fn>
void ForExpBlocks(const T* x, const T* offset, int width, Fn fn) {
  for (int c = 0; c < width; c += kBlock) {
    T in[kBlock] = {}, exp[kBlock];
    memcpy(in, x + c, (width - c < kBlock ? width - c : kBlock) * sizeof(T));
    for (int j = 0; j < kBlock; ++j) exp[j] = math::Exp(in[j] - offset[c + j]);
    fn(exp, c);
  }
}

template <typename T>
void LogSumsOfTile(const T* x, int64_t classes, int64_t stride, int width, T* max_out, T* log_sum) {
  const T lowest = -static_cast<T>(HUGE_VAL);
  T max[kTileColumns], offset[kTileColumns] = {};
  for (T& element : max) element = lowest;
  InPieces(classes, width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* row = x + r * stride;
      for (int j = 0; j < width; ++j) max[j] = Maximum()(max[j], row[j]);
    }
  });
  for (int j = 0; j < width; ++j) offset[j] = max[j] == lowest ? T{0} : max[j];
  double sum[kTileColumns] = {};
  InPieces(classes, width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      ForExpBlocks(x + r * stride, offset, width, [&](const T* exp, int c) {
        for (int j = 0; j < kBlock; ++j) sum[c + j] += exp[j];
      });
    }
  });
  for (int j = 0; j < width; ++j) {
    max_out[j] = max[j];
    log_sum[j] = static_cast<T>(log(sum[j]));
  }
}

template <typename T>
void LogSums(const void* x_data, int64_t classes, int64_t stride, int64_t cols, void* max_data,
             void* log_sum_data) {
  const auto* x = static_cast<const T*>(x_data);
  auto* max = static_cast<T*>(max_data);
  auto* log_sum = static_cast<T*>(log_sum_data);
  if (stride == 1) return LogSumOfRow(x, classes, max, log_sum);
  ForColumnTiles(cols, [&](int64_t c, int width) {
    LogSumsOfTile(x + c, classes, stride, width, max + c, log_sum + c);
  });
}

template <typename T>
void Smooth(const void* x_data, int64_t classes, int64_t stride, int64_t cols,
            const void* weight_data, const void* max_data, const void* log_sum_data, double* sums) {
  const auto* x = static_cast<const T*>(x_data);
  const auto* weight = static_cast<const T*>(weight_data);
  const auto* max = static_cast<const T*>(max_data);
  const auto* log_sum = static_cast<const T*>(log_sum_data);
  if (stride == 1) {
    const Vector<T> largest = Broadcast(*max), log_sums = Broadcast(*log_sum);
    *sums = SumTerms<T>(classes, [&](int64_t i, int64_t k) {
      const Vector<T> loss = (largest - Load(x + i, k)) + log_sums;
      if (weight != nullptr) return loss * Load(weight + i, k);
      return k == kWidth<T> ? loss : Load(reinterpret_cast<const T*>(&loss), k);
    });
    return;
  }
  for (int64_t j = 0; j < cols; ++j) sums[j] = 0;
  InPieces(classes, cols, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* row = x + r * stride;
      const T factor = weight == nullptr ? T{1} : weight[r];
      for (int64_t j = 0; j < cols; ++j) sums[j] += factor * ((max[j] - row[j]) + log_sum[j]);
    }
  });
}

// gx[j] = exp(x[j] - lse) a - weight[j] b for one block.
template <typename T>
void BackwardBlock(const T* x, const T* weight, T lse, T a, T b, T* gx) {
  T exp[kBlock];
  for (int j = 0; j < kBlock; ++j) exp[j] = math::Exp(x[j] - lse);
  if (weight == nullptr) {
    for (int j = 0; j < kBlock; ++j) gx[j] = exp[j] * a - b;
  } else {
    for (int j = 0; j < kBlock; ++j) gx[j] = exp[j] * a - weight[j] * b;
  }
}

template <typename T>
void BackwardOfRow(const T* x, int64_t n, const T* weight, T lse, T a, T b, T* gx) {
  InPieces(n, 1, [&](int64_t begin, int64_t end) {
    if (a == T{0}) {
      for (int64_t i = begin; i < end; ++i) gx[i] = -(weight == nullptr ? b : weight[i] * b);
      return;
    }
    int64_t i = begin;
    for (; i + kBlock <= end; i += kBlock) {
      BackwardBlock(x + i, weight == nullptr ? nullptr : weight + i, lse, a, b, gx + i);
    }
    if (i == end) return;
    T in[kBlock] = {}, weights[kBlock] = {}, out[kBlock];
    memcpy(in, x + i, (end - i) * sizeof(T));
    if (weight != nullptr) memcpy(weights, weight + i, (end - i) * sizeof(T));
    BackwardBlock(in, weight == nullptr ? nullptr : weights, lse, a, b, out);
    memcpy(gx + i, out, (end - i) * sizeof(T));
  });
}

template <typename T>
void Backward(const void* x_data, int64_t classes, int64_t stride, int64_t cols,
              const void* weight_data, const void* lse_data, const void* a_data, const void* b_data,
              void* gx_data) {
  const auto* x = static_cast<const T*>(x_data);
  const auto* weight = static_cast<const T*>(weight_data);
  const auto* lse = static_cast<const T*>(lse_data);
  const auto* a = static_cast<const T*>(a_data);
  const auto* b = static_cast<const T*>(b_data);
  auto* gx = static_cast<T*>(gx_data);
  if (stride == 1) return BackwardOfRow(x, classes, weight, *lse, *a, *b, gx);
  ForColumnTiles(cols, [&](int64_t c, int width) {
    T offset[kTileColumns] = {};
    memcpy(offset, lse + c, width * sizeof(T));
    InPieces(classes, width, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T factor = weight == nullptr ? T{1} : weight[r];
        T* to = gx + r * stride + c;
        ForExpBlocks(x + r * stride + c, offset, width, [&](const T* exp, int at) {
          const int count = width - at < kBlock ? width - at : kBlock;
          const T *a_at = a + c + at, *b_at = b + c + at;
          for (int j = 0; j < count; ++j) {
            to[at + j] = (a_at[j] == T{0} ? T{0} : exp[j] * a_at[j]) - factor * b_at[j];
          }
        });
      }
    });
  });
}

template <typename T>
void FillCrossEntropy(NetworkLoops& loops) {
  loops.cross_entropy[kIndexOf<T>] = {LogSums<T>, Smooth<T>, Backward<T>};
}

}  // namespace

void FillCrossEntropyLoops(NetworkLoops& loops) {
  FillCrossEntropy<float>(loops);
  FillCrossEntropy<double>(loops);
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
