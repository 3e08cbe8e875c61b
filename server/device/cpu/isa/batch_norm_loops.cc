#include "tensord/server/device/cpu/isa/lanes.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

template <typename T>
void Normalize(const void* x_data, int64_t n, double mean, double scale, double shift,
               void* y_data) {
  const auto* x = static_cast<const T*>(x_data);
  auto* y = static_cast<T*>(y_data);
  const Vector<T> means = Broadcast(static_cast<T>(mean)),
                  scales = Broadcast(static_cast<T>(scale)),
                  shifts = Broadcast(static_cast<T>(shift));
  ForVectors<T>(n, [&](int64_t i, int64_t k) {
    Store(y + i, (Load(x + i, k) - means) * scales + shifts, k);
  });
}

// The number of partial sums.
constexpr int kProductLanes = 32;

template <typename T>
void AddProducts(const void* g_data, const void* x_data, int64_t n, double mean, double* sums) {
  const T* __restrict g = static_cast<const T*>(g_data);
  const T* __restrict x = static_cast<const T*>(x_data);
  double sum[kProductLanes] = {}, product[kProductLanes] = {};
  InPieces(n, 1, [&](int64_t begin, int64_t end) {
    int64_t i = begin;
    for (; i + kProductLanes <= end; i += kProductLanes) {
      for (int j = 0; j < kProductLanes; ++j) {
        const auto gradient = static_cast<double>(g[i + j]);
        sum[j] += gradient;
        product[j] += gradient * (static_cast<double>(x[i + j]) - mean);
      }
    }
    for (int j = 0; i + j < end; ++j) {
      const auto gradient = static_cast<double>(g[i + j]);
      sum[j] += gradient;
      product[j] += gradient * (static_cast<double>(x[i + j]) - mean);
    }
  });
  for (int half = kProductLanes / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) {
      sum[j] += sum[j + half];
      product[j] += product[j + half];
    }
  }
  sums[0] += sum[0];
  sums[1] += product[0];
}

template <typename T>
void Gradient(const void* g_data, const void* x_data, int64_t n, double mean, double shift,
              double slope, double scale, void* gx_data) {
  const auto* g = static_cast<const T*>(g_data);
  const auto* x = static_cast<const T*>(x_data);
  auto* gx = static_cast<T*>(gx_data);
  const Vector<T> means = Broadcast(static_cast<T>(mean)),
                  shifts = Broadcast(static_cast<T>(shift)),
                  slopes = Broadcast(static_cast<T>(slope)),
                  scales = Broadcast(static_cast<T>(scale));
  ForVectors<T>(n, [&](int64_t i, int64_t k) {
    Store(gx + i, (Load(g + i, k) - shifts - (Load(x + i, k) - means) * slopes) * scales, k);
  });
}

template <typename T>
void FillBatchNorm(NetworkLoops& loops) {
  loops.batch_norm[kIndexOf<T>] = {Normalize<T>, AddProducts<T>, Gradient<T>};
}

}  // namespace

void FillBatchNormLoops(NetworkLoops& loops) {
  FillBatchNorm<float>(loops);
  FillBatchNorm<double>(loops);
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
