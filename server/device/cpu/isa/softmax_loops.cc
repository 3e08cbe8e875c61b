#include "tensord/server/device/cpu/isa/vector_libm.h"

#include <string.h>

#include "tensord/server/device/cpu/isa/reduce.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

// y[j] = exp(x[j] - offset) for one block. Adds y[j] to lane[j].
template <typename T>
void ExpBlock(const T* __restrict x, T offset, T* __restrict y, T (&lane)[kVectorLibmBlock]) {
  for (int j = 0; j < kVectorLibmBlock; ++j) y[j] = math::Exp(x[j] - offset);
  for (int j = 0; j < kVectorLibmBlock; ++j) lane[j] += y[j];
}

// Returns the pairwise sum of the lanes.
template <typename T>
double SumOfLanes(const T (&lane)[kVectorLibmBlock]) {
  double sum[kVectorLibmBlock];
  for (int j = 0; j < kVectorLibmBlock; ++j) sum[j] = lane[j];
  for (int half = kVectorLibmBlock / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) sum[j] += sum[j + half];
  }
  return sum[0];
}

// y[0, n) = exp(x[0, n) - offset). Returns `sum` plus the sum of y. Sums over kBlockElements
// elements are added in double.
template <typename T>
double ExpOfDifference(const T* x, T offset, T* y, int64_t n, double sum) {
  constexpr int kBlock = kVectorLibmBlock;
  int64_t i = 0;
  while (i + kBlock <= n) {
    T lane[kBlock] = {};
    const int64_t end = n - i < kBlockElements ? n : i + kBlockElements;
    for (; i + kBlock <= end; i += kBlock) ExpBlock(x + i, offset, y + i, lane);
    sum += SumOfLanes(lane);
  }
  if (i == n) return sum;
  T in[kBlock], out[kBlock], unused[kBlock] = {};
  for (T& element : in) element = offset;
  memcpy(in, x + i, (n - i) * sizeof(T));
  ExpBlock(in, offset, out, unused);
  memcpy(y + i, out, (n - i) * sizeof(T));
  for (int64_t j = 0; j < n - i; ++j) sum += out[j];
  return sum;
}

template <typename T, bool kLog>
void SoftmaxRow(const void* x_data, void* y_data, int64_t n) {
  const T* x = static_cast<const T*>(x_data);
  T* y = static_cast<T*>(y_data);
  const T max = ReduceLongRun<MaxPolicy<T>>(x, n);
  double total = 0;
  InPieces(n, 1, [&](int64_t begin, int64_t end) {
    total = ExpOfDifference(x + begin, max, y + begin, end - begin, total);
  });
  const T sum = static_cast<T>(total);
  if constexpr (kLog) {
    const T log_sum = math::Log(sum);
    InPieces(n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = x[i] - max - log_sum;
    });
  } else {
    // The sum is at least 1, so its inverse has an error of at most half a unit in the last place.
    // A product is much faster than a division.
    const T inverse = T{1} / sum;
    InPieces(n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] *= inverse;
    });
  }
}

constexpr int kSoftmaxColumns = 256;

// Computes the softmax of `width` columns, at most kSoftmaxColumns.
template <typename T, bool kLog>
void SoftmaxTile(const T* x, T* y, int64_t rows, int64_t row_stride, int width) {
  constexpr int kBlock = kVectorLibmBlock;
  T max[kSoftmaxColumns] = {}, sum[kSoftmaxColumns] = {}, out[kSoftmaxColumns];
  for (int j = 0; j < width; ++j) max[j] = x[j];
  InPieces(rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* row = x + r * row_stride;
      for (int j = 0; j < width; ++j) max[j] = Maximum()(max[j], row[j]);
    }
  });
  InPieces(rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* row = x + r * row_stride;
      for (int j = 0; j < width; ++j) out[j] = row[j] - max[j];
      for (int j = width; j % kBlock != 0; ++j) out[j] = T{0};
      for (int c = 0; c < width; c += kBlock) {
        for (int j = c; j < c + kBlock; ++j) out[j] = math::Exp(out[j]);
      }
      for (int j = 0; j < width; ++j) sum[j] += out[j];
      if constexpr (!kLog) memcpy(y + r * row_stride, out, width * sizeof(T));
    }
  });
  if constexpr (kLog) {
    for (int c = 0; c < width; c += kBlock) {
      for (int j = c; j < c + kBlock; ++j) sum[j] = math::Log(sum[j]);
    }
  } else {
    for (int j = 0; j < width; ++j) sum[j] = T{1} / sum[j];
  }
  InPieces(rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* x_row = x + r * row_stride;
      T* y_row = y + r * row_stride;
      for (int j = 0; j < width; ++j) {
        y_row[j] = kLog ? x_row[j] - max[j] - sum[j] : y_row[j] * sum[j];
      }
    }
  });
}

template <typename T, bool kLog>
void SoftmaxColumns(const void* x_data, void* y_data, int64_t rows, int64_t row_stride,
                    int64_t cols) {
  const T* x = static_cast<const T*>(x_data);
  T* y = static_cast<T*>(y_data);
  for (int64_t c = 0; c < cols; c += kSoftmaxColumns) {
    const int width = static_cast<int>(cols - c < kSoftmaxColumns ? cols - c : kSoftmaxColumns);
    SoftmaxTile<T, kLog>(x + c, y + c, rows, row_stride, width);
  }
}

template <typename T>
void FillSoftmax(Loops& loops) {
  loops.softmax[kIndexOf<T>] = {SoftmaxRow<T, false>, SoftmaxColumns<T, false>};
  loops.log_softmax[kIndexOf<T>] = {SoftmaxRow<T, true>, SoftmaxColumns<T, true>};
}

}  // namespace

void FillSoftmaxLoops(Loops& loops) {
  FillSoftmax<float>(loops);
  FillSoftmax<double>(loops);
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
