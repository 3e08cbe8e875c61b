// The loops over functors of one operand. Only files that are compiled once for each level may
// include this header.
#pragma once

#include <string.h>

#include "tensord/server/device/cpu/isa/fill.h"
#include "tensord/server/device/cpu/isa/vector_libm.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

template <typename F, typename T>
void Unary(const void* x_data, void* y_data, int64_t n) {
  const T* x = static_cast<const T*>(x_data);
  T* y = static_cast<T*>(y_data);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = Narrow<T>(F()(Widen(x[i])));
}

// The loop of a functor F that calls libm. Processes only whole blocks: the last one is padded.
template <typename F, typename T>
void UnaryLibm(const void* x_data, void* y_data, int64_t n) {
  constexpr int kBlock = kVectorLibmBlock;
  const T* x = static_cast<const T*>(x_data);
  T* y = static_cast<T*>(y_data);
  T padded[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t rest = n - i;
    const T* in = x + i;
    T* out = y + i;
    if (rest < kBlock) {
      for (T& element : padded) element = T{1};
      memcpy(padded, in, rest * sizeof(T));
      in = out = padded;
    }
#pragma GCC ivdep
    for (int j = 0; j < kBlock; ++j) out[j] = F()(in[j]);
    if (rest < kBlock) memcpy(y + i, padded, rest * sizeof(T));
  }
}

template <typename F, ElementwiseCost cost, typename T>
constexpr UnaryLoop UnaryLoopFor() {
  if constexpr (cost == ElementwiseCost::kLibm && std::is_floating_point_v<T>) {
    return UnaryLibm<F, T>;
  } else {
    return Unary<F, T>;
  }
}

template <typename F, ElementwiseCost cost, typename... Ts>
void FillUnary(UnaryLoop (&loops)[kDTypeCount], MathTypes<Ts...>) {
  ((loops[kIndexOf<Ts>] = UnaryLoopFor<F, cost, KernelType<F, Ts>>()), ...);
}

}  // namespace
}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
