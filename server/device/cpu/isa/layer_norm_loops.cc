#include <math.h>

#include "tensord/server/device/cpu/isa/lanes.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

template <typename T>
void Row(const void* x_data, const void* weight_data, const void* bias_data, void* y_data,
         int64_t n, double eps, bool center, void* mean_out, void* rstd_out) {
  const auto* x = static_cast<const T*>(x_data);
  const auto* weight = static_cast<const T*>(weight_data);
  const auto* bias = static_cast<const T*>(bias_data);
  auto* y = static_cast<T*>(y_data);
  const auto count = static_cast<double>(n);
  T mean = T{0};
  if (center) {
    mean = static_cast<T>(SumTerms<T>(n, [&](int64_t i, int64_t k) { return Load(x + i, k); }) /
                          count);
  }
  const Vector<T> means = Broadcast(mean);
  const double squares = SumTerms<T>(n, [&](int64_t i, int64_t k) {
    const Vector<T> deviation = Load(x + i, k, mean) - means;
    return deviation * deviation;
  });
  const auto rstd = static_cast<T>(1 / sqrt(squares / count + eps));
  const Vector<T> scale = Broadcast(rstd);
  if (weight == nullptr) {
    ForVectors<T>(n,
                  [&](int64_t i, int64_t k) { Store(y + i, (Load(x + i, k) - means) * scale, k); });
  } else if (bias == nullptr) {
    ForVectors<T>(n, [&](int64_t i, int64_t k) {
      Store(y + i, (Load(x + i, k) - means) * scale * Load(weight + i, k), k);
    });
  } else {
    ForVectors<T>(n, [&](int64_t i, int64_t k) {
      Store(y + i, (Load(x + i, k) - means) * scale * Load(weight + i, k) + Load(bias + i, k), k);
    });
  }
  if (mean_out != nullptr) *static_cast<T*>(mean_out) = n == 0 ? static_cast<T>(NAN) : mean;
  *static_cast<T*>(rstd_out) = rstd;
}

// The row's operands.
template <typename T>
struct BackwardOperands {
  const T *g, *x, *weight;
  T *gw, *gb;
  Vector<T> mean, rstd;

  Vector<T> Normalized(int64_t i, int64_t k) const {
    return (Load(x + i, k, mean[0]) - mean) * rstd;
  }
};

// Adds to the parameters' gradients, and adds Σ g weight and Σ g weight x̂ of the row to `sums`.
template <typename T, bool kWeight, bool kParameters>
void FirstPass(const BackwardOperands<T> row, int64_t n, double (&sums)[2]) {
  AddTerms<T, 2>(n, sums, [&](int64_t i, int64_t k) -> Terms<T, 2> {
    const Vector<T> g = Load(row.g + i, k), normalized = row.Normalized(i, k);
    if constexpr (kParameters) {
      if (row.gw != nullptr) Store(row.gw + i, Load(row.gw + i, k) + g * normalized, k);
      if (row.gb != nullptr) Store(row.gb + i, Load(row.gb + i, k) + g, k);
    }
    const Vector<T> scaled = kWeight ? g * Load(row.weight + i, k) : g;
    return {{scaled, scaled * normalized}};
  });
}

template <typename T>
void BackwardRow(const LayerNormBackwardRow& row) {
  const BackwardOperands<T> operands = {static_cast<const T*>(row.g),
                                        static_cast<const T*>(row.x),
                                        static_cast<const T*>(row.weight),
                                        static_cast<T*>(row.gw),
                                        static_cast<T*>(row.gb),
                                        Broadcast(static_cast<T>(row.mean)),
                                        Broadcast(static_cast<T>(row.rstd))};
  const bool parameters = row.gw != nullptr || row.gb != nullptr;
  double sums[2] = {0, 0};
  if (row.weight != nullptr) {
    parameters ? FirstPass<T, true, true>(operands, row.n, sums)
               : FirstPass<T, true, false>(operands, row.n, sums);
  } else {
    parameters ? FirstPass<T, false, true>(operands, row.n, sums)
               : FirstPass<T, false, false>(operands, row.n, sums);
  }
  if (row.gx == nullptr) return;
  auto* gx = static_cast<T*>(row.gx);
  const auto count = static_cast<double>(row.n);
  const Vector<T> shift = Broadcast(row.center ? static_cast<T>(sums[0] / count) : T{0});
  const Vector<T> slope = Broadcast(static_cast<T>(sums[1] / count));
  const auto write = [&](int64_t i, int64_t k, Vector<T> scaled) {
    Store(gx + i, operands.rstd * (scaled - shift - operands.Normalized(i, k) * slope), k);
  };
  if (row.weight != nullptr) {
    ForVectors<T>(row.n, [&](int64_t i, int64_t k) {
      write(i, k, Load(operands.g + i, k) * Load(operands.weight + i, k));
    });
  } else {
    ForVectors<T>(row.n, [&](int64_t i, int64_t k) { write(i, k, Load(operands.g + i, k)); });
  }
}

template <typename T>
void AddParts(const void* parts_data, int64_t count, int64_t stride, int64_t n, void* sums_data) {
  const auto* parts = static_cast<const T*>(parts_data);
  auto* sums = static_cast<T*>(sums_data);
  ForColumnTiles(n, [&](int64_t c, int width) {
    double total[kTileColumns] = {};
    for (int64_t p = 0; p < count; ++p) {
      const T* part = parts + p * stride + c;
      for (int j = 0; j < width; ++j) total[j] += part[j];
    }
    for (int j = 0; j < width; ++j) sums[c + j] = static_cast<T>(total[j]);
  });
}

template <typename T>
void FillLayerNorm(NetworkLoops& loops) {
  loops.layer_norm[kIndexOf<T>] = {Row<T>, BackwardRow<T>};
  loops.add_parts[kIndexOf<T>] = AddParts<T>;
}

}  // namespace

void FillLayerNormLoops(NetworkLoops& loops) {
  FillLayerNorm<float>(loops);
  FillLayerNorm<double>(loops);
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
