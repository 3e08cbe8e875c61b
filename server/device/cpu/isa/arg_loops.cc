#include "tensord/server/device/cpu/isa/reduce.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

// Returns true if x equals the extreme value, or if both are NaN.
template <typename T>
bool EqualsExtreme(T extreme, T x) {
  return (x == extreme) | (IsNan(x) & IsNan(extreme));
}

// Finds the extreme value first, then its first index. Both passes run at the speed of memory.
template <typename Policy>
int64_t ArgRow(const void* x_data, int64_t n) {
  constexpr int kBlock = 256;
  using Acc = typename Policy::Acc;
  const auto* x = static_cast<const typename Policy::In*>(x_data);
  const Acc extreme = ReduceLongRun<Policy>(x, n);
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    if (i % kMaxLoopElements == 0 && i > 0 && LoopMustStop()) return 0;
    // Count is as wide as the elements, so that the loop vectorises.
    using Count = std::conditional_t<sizeof(Acc) == 1, uint8_t,
                                     std::conditional_t<sizeof(Acc) == 4, uint32_t, uint64_t>>;
    Count found = 0;
    for (int j = 0; j < kBlock; ++j) {
      found |= EqualsExtreme<Acc>(extreme, Widen(x[i + j])) ? Count{1} : Count{0};
    }
    if (found != 0) break;
  }
  while (i < n - 1 && !EqualsExtreme<Acc>(extreme, Widen(x[i]))) ++i;
  return i;
}

template <typename Policy>
void ArgColumns(const void* x_data, int64_t rows, int64_t row_stride, int64_t cols,
                int64_t* index) {
  constexpr int kTile = 64;
  using Acc = typename Policy::Acc;
  const auto* x = static_cast<const typename Policy::In*>(x_data);
  for (int64_t c = 0; c < cols; c += kTile) {
    const int width = static_cast<int>(cols - c < kTile ? cols - c : kTile);
    Acc best[kTile];
    for (int j = 0; j < width; ++j) {
      best[j] = Widen(x[c + j]);
      index[c + j] = 0;
    }
    InPieces(rows, width, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const auto* row = x + r * row_stride + c;
        for (int j = 0; j < width; ++j) {
          const Acc value = Widen(row[j]);
          // `value` is better if it differs from best[j] and would replace it in a reduction.
          const bool better = (value != best[j]) & !IsNan(best[j]) &
                              EqualsExtreme<Acc>(Policy::Combine(best[j], value), value);
          best[j] = better ? value : best[j];
          index[c + j] = better ? r : index[c + j];
        }
      }
    });
  }
}

template <typename... Ts>
void FillArg(Loops& loops, MathTypes<Ts...>) {
  ((loops.argmax[kIndexOf<Ts>] = {ArgRow<MaxPolicy<Ts>>, ArgColumns<MaxPolicy<Ts>>}), ...);
  ((loops.argmin[kIndexOf<Ts>] = {ArgRow<MinPolicy<Ts>>, ArgColumns<MinPolicy<Ts>>}), ...);
}

}  // namespace

void FillArgLoops(Loops& loops) { FillArg(loops, AllMathTypes()); }

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
