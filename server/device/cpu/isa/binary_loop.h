// The loops over functors of two operands. Only files that are compiled once for each level may
// include this header.
#pragma once

#include <string.h>

#include "tensord/server/device/cpu/isa/fill.h"
#include "tensord/server/device/cpu/isa/vector_libm.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

// Convert an operand from its storage type to the type that F takes, and F's result to its storage
// type.
template <typename F, typename T>
inline auto ToOperand(T value) {
  if constexpr (kTakesStorage<F>) {
    return value;
  } else {
    return Widen(value);
  }
}
template <typename F, typename Y, typename Result>
inline Y FromResult(Result value) {
  if constexpr (kTakesStorage<F>) {
    return value;
  } else {
    return Narrow<Y>(value);
  }
}

// The storage type of F's result: Bool if F returns bool, otherwise T.
template <typename F, typename T>
using ResultOf =
    std::conditional_t<std::is_same_v<decltype(F()(ToOperand<F>(T()), ToOperand<F>(T()))), bool>,
                       Bool, T>;

template <typename F, typename T>
void Binary(const void* a_data, int a_step, const void* b_data, int b_step, void* y_data,
            int64_t n) {
  using Y = ResultOf<F, T>;
  const T* a = static_cast<const T*>(a_data);
  const T* b = static_cast<const T*>(b_data);
  Y* y = static_cast<Y*>(y_data);
  if (a_step != 0 && b_step != 0) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i)
      y[i] = FromResult<F, Y>(F()(ToOperand<F>(a[i]), ToOperand<F>(b[i])));
  } else if (a_step != 0) {
    const auto b0 = ToOperand<F>(*b);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = FromResult<F, Y>(F()(ToOperand<F>(a[i]), b0));
  } else {
    // If both steps are 0, n is 1.
    const auto a0 = ToOperand<F>(*a);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = FromResult<F, Y>(F()(a0, ToOperand<F>(b[i])));
  }
}

// Calls `compute(a, b, y)` for blocks of kVectorLibmBlock elements. The last block is padded.
template <typename T, typename Compute>
void ForEachWholeBlock(const void* a_data, int a_step, const void* b_data, int b_step, void* y_data,
                       int64_t n, Compute compute) {
  constexpr int kBlock = kVectorLibmBlock;
  const T* a = static_cast<const T*>(a_data);
  const T* b = static_cast<const T*>(b_data);
  T* y = static_cast<T*>(y_data);
  T a_block[kBlock], b_block[kBlock], y_block[kBlock];
  for (T& element : a_block) element = *a;
  for (T& element : b_block) element = *b;
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t count = n - i < kBlock ? n - i : kBlock;
    if (a_step != 0) memcpy(a_block, a + i, count * sizeof(T));
    if (b_step != 0) memcpy(b_block, b + i, count * sizeof(T));
    compute(a_block, b_block, y_block);
    memcpy(y + i, y_block, count * sizeof(T));
  }
}
template <typename T>
using WholeBlock = T[kVectorLibmBlock];

// The loop of a functor F that calls libm.
template <typename F, typename T>
void BinaryLibm(const void* a, int a_step, const void* b, int b_step, void* y, int64_t n) {
  ForEachWholeBlock<T>(a, a_step, b, b_step, y, n,
                       [](const WholeBlock<T>& a, const WholeBlock<T>& b, WholeBlock<T>& y) {
                         for (int j = 0; j < kVectorLibmBlock; ++j) y[j] = F()(a[j], b[j]);
                       });
}

template <typename F, ElementwiseCost cost, typename T>
constexpr BinaryLoop BinaryLoopFor() {
  if constexpr (cost == ElementwiseCost::kLibm && std::is_floating_point_v<T>) {
    return BinaryLibm<F, T>;
  } else {
    return Binary<F, T>;
  }
}

template <typename F, ElementwiseCost cost, typename... Ts>
void FillBinary(BinaryLoop (&loops)[kDTypeCount], MathTypes<Ts...>) {
  ((loops[kIndexOf<Ts>] = BinaryLoopFor<F, cost, KernelType<F, Ts>>()), ...);
}

}  // namespace
}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
