#include "tensord/server/device/cpu/isa/vector_libm.h"

#include <string.h>

#include "tensord/server/device/cpu/isa/reduce.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

// y[0, n) = exp(x[0, n) - offset).
template <typename T>
void ExpOfDifference(const T* x, T offset, T* y, int64_t n) {
  constexpr int kBlock = kVectorLibmBlock;
  T in[kBlock], out[kBlock];
  for (T& element : in) element = offset;
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    for (int j = 0; j < kBlock; ++j) y[i + j] = math::Exp(x[i + j] - offset);
  }
  if (i == n) return;
  memcpy(in, x + i, (n - i) * sizeof(T));
  for (int j = 0; j < kBlock; ++j) out[j] = math::Exp(in[j] - offset);
  memcpy(y + i, out, (n - i) * sizeof(T));
}

template <typename T>
double SumOf(const T* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i += kBlockElements) {
    const int64_t count = n - i < kBlockElements ? n - i : kBlockElements;
    sum += ReduceRun<SumPolicy<T, T>>(x + i, count, 0.0);
  }
  return sum;
}

template <typename T, bool kLog>
void SoftmaxRow(const void* x_data, void* y_data, int64_t n) {
  const T* x = static_cast<const T*>(x_data);
  T* y = static_cast<T*>(y_data);
  const T max = ReduceRun<MaxPolicy<T>>(x, n, 0.0);
  ExpOfDifference(x, max, y, n);
  const T sum = static_cast<T>(SumOf(y, n));
  if constexpr (kLog) {
    const T log_sum = math::Log(sum);
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] - max - log_sum;
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = y[i] / sum;
  }
}

// Down to kWidth columns at once; `in` and `out` pad what is missing to whole blocks.
template <typename T, bool kLog>
void SoftmaxTile(const T* x, T* y, int64_t rows, int64_t row_stride, int width) {
  constexpr int kWidth = kVectorLibmBlock;
  T max[kWidth], sum[kWidth], in[kWidth] = {}, out[kWidth];
  for (int j = 0; j < kWidth; ++j) max[j] = sum[j] = T{0};
  for (int j = 0; j < width; ++j) max[j] = x[j];
  for (int64_t r = 1; r < rows; ++r) {
    const T* row = x + r * row_stride;
    for (int j = 0; j < width; ++j) max[j] = Maximum()(max[j], row[j]);
  }
  for (int64_t r = 0; r < rows; ++r) {
    memcpy(in, x + r * row_stride, width * sizeof(T));
    for (int j = 0; j < kWidth; ++j) out[j] = math::Exp(in[j] - max[j]);
    for (int j = 0; j < kWidth; ++j) sum[j] += out[j];
    memcpy(y + r * row_stride, out, width * sizeof(T));
  }
  if constexpr (kLog) {
    for (int j = 0; j < kWidth; ++j) sum[j] = math::Log(sum[j]);
  }
  for (int64_t r = 0; r < rows; ++r) {
    const T* x_row = x + r * row_stride;
    T* y_row = y + r * row_stride;
    for (int j = 0; j < width; ++j) {
      y_row[j] = kLog ? x_row[j] - max[j] - sum[j] : y_row[j] / sum[j];
    }
  }
}

template <typename T, bool kLog>
void SoftmaxColumns(const void* x_data, void* y_data, int64_t rows, int64_t row_stride,
                    int64_t cols) {
  constexpr int kWidth = kVectorLibmBlock;
  const T* x = static_cast<const T*>(x_data);
  T* y = static_cast<T*>(y_data);
  for (int64_t c = 0; c < cols; c += kWidth) {
    const int width = static_cast<int>(cols - c < kWidth ? cols - c : kWidth);
    SoftmaxTile<T, kLog>(x + c, y + c, rows, row_stride, width);
  }
}

template <typename T>
void Fill(Loops& loops) {
  loops.softmax[kIndexOf<T>] = {SoftmaxRow<T, false>, SoftmaxColumns<T, false>};
  loops.log_softmax[kIndexOf<T>] = {SoftmaxRow<T, true>, SoftmaxColumns<T, true>};
}

}  // namespace

void FillSoftmaxLoops(Loops& loops) {
  Fill<float>(loops);
  Fill<double>(loops);
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
