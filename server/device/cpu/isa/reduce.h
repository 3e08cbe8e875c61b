// The loops that all reductions of a level use. The order of operations depends only on the numbers
// of elements. So results are the same at every level and for any number of threads.
//
// A Policy has the types In (storage) and Acc, and the static functions Identity() -> Acc,
// Map(MathOf<In>, power) -> Acc and Combine(Acc, Acc) -> Acc.
#pragma once

#include "tensord/server/device/cpu/isa/fill.h"
#include "tensord/server/device/cpu/isa/pieces.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {

constexpr int FloorPowerOfTwo(int n) { return n < 2 ? 1 : 2 * FloorPowerOfTwo(n / 2); }

// The number of independent partial results, a power of two. 256 bytes fill the registers and hide
// the latency of an addition.
template <typename Acc>
inline constexpr int kLanes = FloorPowerOfTwo(256 / sizeof(Acc));

// True if the policy has CombineNumbers(), as MaxPolicy and MinPolicy do, and its type is floating.
template <typename Policy>
inline constexpr bool kIsFloatingExtreme = requires(typename Policy::Acc a) {
  Policy::CombineNumbers(a, a);
  requires std::is_floating_point_v<typename Policy::In>;
};

// Several rows of at most this length are reduced at a time.
inline constexpr int kShortRow = 16;

// Does the same as ReduceRun() for a policy for which kIsFloatingExtreme is true. Such a policy
// ignores the power. The results have the same bits, except NaNs. This function compares without
// regard to NaNs and looks for them separately, which takes half as many instructions.
template <typename Policy>
typename Policy::Acc ExtremeOfRun(const typename Policy::In* x, int64_t n) {
  using Acc = typename Policy::Acc;
  using Flag = std::conditional_t<sizeof(*x) == 4, int32_t, int64_t>;
  constexpr int kWidth = kLanes<Acc>;
  Acc lane[kWidth];
  Flag has_nan[kWidth / 2] = {};  // of the lanes j and j + kWidth / 2
  for (int j = 0; j < kWidth; ++j) lane[j] = Policy::Identity();
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    for (int j = 0; j < kWidth; ++j) {
      lane[j] = Policy::CombineNumbers(lane[j], Policy::Map(x[i + j], 0));
    }
    for (int j = 0; j < kWidth / 2; ++j) {
      has_nan[j] |= __builtin_isunordered(x[i + j], x[i + j + kWidth / 2]) ? Flag{-1} : Flag{0};
    }
  }
  for (int j = 0; i + j < n; ++j) {
    lane[j] = Policy::CombineNumbers(lane[j], Policy::Map(x[i + j], 0));
    has_nan[j % (kWidth / 2)] |= IsNan(x[i + j]) ? Flag{-1} : Flag{0};
  }
  for (int width = kWidth / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lane[j] = Policy::CombineNumbers(lane[j], lane[j + width]);
  }
  for (int width = kWidth / 4; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) has_nan[j] |= has_nan[j + width];
  }
  return has_nan[0] != 0 ? std::numeric_limits<Acc>::quiet_NaN() : lane[0];
}

template <typename Policy>
typename Policy::Acc ReduceRun(const typename Policy::In* x, int64_t n, double power) {
  using Acc = typename Policy::Acc;
  if constexpr (kIsFloatingExtreme<Policy>) return ExtremeOfRun<Policy>(x, n);
  constexpr int kWidth = kLanes<Acc>;
  Acc lane[kWidth];
  int width = kWidth;
  while (width > 1 && width / 2 >= n) width /= 2;
  for (int j = 0; j < width; ++j) lane[j] = Policy::Identity();
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    for (int j = 0; j < kWidth; ++j) {
      lane[j] = Policy::Combine(lane[j], Policy::Map(Widen(x[i + j]), power));
    }
  }
  for (int j = 0; i + j < n; ++j) {
    lane[j] = Policy::Combine(lane[j], Policy::Map(Widen(x[i + j]), power));
  }
  for (width /= 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lane[j] = Policy::Combine(lane[j], lane[j + width]);
  }
  return lane[0];
}

// Does the same in pieces, for a policy that ignores the power and the order of elements, such as
// MaxPolicy. If the op must stop, returns early.
template <typename Policy>
typename Policy::Acc ReduceLongRun(const typename Policy::In* x, int64_t n) {
  typename Policy::Acc acc = Policy::Identity();
  InPieces(n, 1, [&](int64_t begin, int64_t end) {
    acc = Policy::Combine(acc, ReduceRun<Policy>(x + begin, end - begin, 0.0));
  });
  return acc;
}

template <typename Policy>
void ReduceShortRows(const typename Policy::In* x, int64_t rows, int64_t n, double power,
                     typename Policy::Acc* acc) {
  using Acc = typename Policy::Acc;
  constexpr int kWidth = kLanes<Acc>;
  for (int64_t first = 0; first < rows; first += kWidth) {
    const int width = static_cast<int>(rows - first < kWidth ? rows - first : kWidth);
    Acc lane[kWidth];
    for (int r = 0; r < width; ++r) lane[r] = Policy::Identity();
    for (int64_t j = 0; j < n; ++j) {
      const auto* column = x + first * n + j;
      for (int r = 0; r < width; ++r) {
        lane[r] = Policy::Combine(lane[r], Policy::Map(Widen(column[r * n]), power));
      }
    }
    for (int r = 0; r < width; ++r) acc[first + r] = lane[r];
  }
}

template <typename Policy>
void ReduceRows(const void* x_data, int64_t rows, int64_t n, double power, void* acc_data) {
  const auto* x = static_cast<const typename Policy::In*>(x_data);
  auto* acc = static_cast<typename Policy::Acc*>(acc_data);
  if (n <= kShortRow) return ReduceShortRows<Policy>(x, rows, n, power, acc);
  for (int64_t r = 0; r < rows; ++r) acc[r] = ReduceRun<Policy>(x + r * n, n, power);
}

// Reduces kLanes columns to `acc` as ReduceColumns() does, for a policy that kIsFloatingExtreme. If
// an element is NaN, returns false, and `acc` is unchanged. As in ExtremeOfRun(), this takes half
// as many instructions.
template <typename Policy>
bool ExtremesOfColumns(const typename Policy::In* x, int64_t rows, int64_t row_stride,
                       typename Policy::Acc* acc) {
  using Acc = typename Policy::Acc;
  using Flag = std::conditional_t<sizeof(*x) == 4, int32_t, int64_t>;
  constexpr int kWidth = kLanes<Acc>;
  Acc lane[kWidth];
  Flag has_nan[kWidth / 2] = {};  // of the columns j and j + kWidth / 2
  for (int j = 0; j < kWidth; ++j) lane[j] = Policy::Identity();
  for (int64_t r = 0; r < rows; ++r) {
    const auto* row = x + r * row_stride;
    for (int j = 0; j < kWidth; ++j) {
      lane[j] = Policy::CombineNumbers(lane[j], Policy::Map(row[j], 0));
    }
    for (int j = 0; j < kWidth / 2; ++j) {
      has_nan[j] |= __builtin_isunordered(row[j], row[j + kWidth / 2]) ? Flag{-1} : Flag{0};
    }
  }
  Flag any_nan = 0;
  for (int j = 0; j < kWidth / 2; ++j) any_nan |= has_nan[j];
  if (any_nan != 0) return false;
  for (int j = 0; j < kWidth; ++j) acc[j] = lane[j];
  return true;
}

template <typename Policy>
void ReduceColumns(const void* x_data, int64_t rows, int64_t row_stride, int64_t cols, double power,
                   void* acc_data) {
  using Acc = typename Policy::Acc;
  constexpr int kWidth = kLanes<Acc>;
  const auto* x = static_cast<const typename Policy::In*>(x_data);
  Acc* acc = static_cast<Acc*>(acc_data);
  int64_t c = 0;
  for (; c + kWidth <= cols; c += kWidth) {
    if constexpr (kIsFloatingExtreme<Policy>) {
      if (ExtremesOfColumns<Policy>(x + c, rows, row_stride, acc + c)) continue;
    }
    Acc lane[kWidth];
    for (int j = 0; j < kWidth; ++j) lane[j] = Policy::Identity();
    for (int64_t r = 0; r < rows; ++r) {
      const auto* row = x + r * row_stride + c;
      for (int j = 0; j < kWidth; ++j) {
        lane[j] = Policy::Combine(lane[j], Policy::Map(Widen(row[j]), power));
      }
    }
    for (int j = 0; j < kWidth; ++j) acc[c + j] = lane[j];
  }
  for (int64_t j = c; j < cols; ++j) acc[j] = Policy::Identity();
  for (int64_t r = 0; r < rows; ++r) {
    const auto* row = x + r * row_stride;
    for (int64_t j = c; j < cols; ++j) {
      acc[j] = Policy::Combine(acc[j], Policy::Map(Widen(row[j]), power));
    }
  }
}

template <typename Policy>
void CombineRuns(void* acc_data, const void* other_data, int64_t n) {
  using Acc = typename Policy::Acc;
  Acc* __restrict acc = static_cast<Acc*>(acc_data);
  const Acc* __restrict other = static_cast<const Acc*>(other_data);
  for (int64_t i = 0; i < n; ++i) acc[i] = Policy::Combine(acc[i], other[i]);
}

// Each round combines neighbours. If their number is odd, the last one waits for the next round.
template <typename Policy>
void JoinLeaves(void* acc_data, int64_t n) {
  auto* acc = static_cast<typename Policy::Acc*>(acc_data);
  for (; n > 1; n = (n + 1) / 2) {
    for (int64_t i = 0; i < n / 2; ++i) acc[i] = Policy::Combine(acc[2 * i], acc[2 * i + 1]);
    if (n % 2 != 0) acc[n / 2] = acc[n - 1];
  }
}

template <typename Policy>
ReductionLoops MakeReductionLoops() {
  return {kStorageDType<typename Policy::Acc>,
          sizeof(typename Policy::Acc),
          ReduceRows<Policy>,
          ReduceColumns<Policy>,
          CombineRuns<Policy>,
          JoinLeaves<Policy>};
}

// ---------------------------------------------------------------- policies for several files

template <typename InType, typename AccType>
struct SumPolicy {
  using In = InType;
  using Acc = AccType;
  static Acc Identity() { return Acc{0}; }
  static Acc Map(MathOf<In> x, double /*power*/) { return static_cast<Acc>(x); }
  static Acc Combine(Acc a, Acc b) { return Add()(a, b); }
};

// The accumulator of bool is a byte of 0 or 1.
template <typename T>
struct MaxPolicy {
  using In = T;
  using Acc = std::conditional_t<std::is_same_v<T, Bool>, uint8_t, T>;
  static Acc Identity() {
    if constexpr (std::is_floating_point_v<T>) return -static_cast<T>(HUGE_VAL);
    return kLowestOf<Acc>;
  }
  static Acc Map(MathOf<In> x, double /*power*/) { return x; }
  static Acc Combine(Acc a, Acc b) { return Maximum()(a, b); }
  // Gives the same result if no operand is NaN.
  static Acc CombineNumbers(Acc a, Acc b) { return a > b ? a : b; }
};

template <typename T>
struct MinPolicy {
  using In = T;
  using Acc = std::conditional_t<std::is_same_v<T, Bool>, uint8_t, T>;
  static Acc Identity() {
    if constexpr (std::is_floating_point_v<T>) return static_cast<T>(HUGE_VAL);
    return kHighestOf<Acc>;
  }
  static Acc Map(MathOf<In> x, double /*power*/) { return x; }
  static Acc Combine(Acc a, Acc b) { return Minimum()(a, b); }
  // Gives the same result if no operand is NaN.
  static Acc CombineNumbers(Acc a, Acc b) { return a < b ? a : b; }
};

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
