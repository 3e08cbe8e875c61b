#include "tensord/server/device/adam_numbers.h"
#include "tensord/server/device/cpu/isa/lanes.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

template <typename T, bool kAmsgrad>
void Step(const AdamNumbers& numbers, const AdamArrays& arrays, int64_t n) {
  const AdamNumbers by = numbers;  // a copy, because compilers would read it again after each write
  const auto* p = static_cast<const T*>(arrays.p);
  const auto* g = static_cast<const T*>(arrays.g);
  const auto* m = static_cast<const T*>(arrays.m);
  const auto* v = static_cast<const T*>(arrays.v);
  const auto* vmax = static_cast<const T*>(arrays.vmax);
  auto* p_out = static_cast<T*>(arrays.p_out);
  auto* m_out = static_cast<T*>(arrays.m_out);
  auto* v_out = static_cast<T*>(arrays.v_out);
  auto* vmax_out = static_cast<T*>(arrays.vmax_out);
  // Arrays are the same or don't overlap, so no element depends on another one.
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const AdamElement<T> x =
        AdamStep<kAmsgrad, T>(by, {p[i], m[i], v[i], kAmsgrad ? vmax[i] : T{0}}, g[i]);
    p_out[i] = x.p;
    m_out[i] = x.m;
    v_out[i] = x.v;
    if constexpr (kAmsgrad) vmax_out[i] = x.vmax;
  }
}

template <typename T>
void AnyStep(const AdamNumbers& numbers, const AdamArrays& arrays, int64_t n) {
  arrays.vmax == nullptr ? Step<T, false>(numbers, arrays, n) : Step<T, true>(numbers, arrays, n);
}

}  // namespace

void FillAdamLoops(NetworkLoops& loops) {
  loops.adam[kIndexOf<float>] = AnyStep<float>;
  loops.adam[kIndexOf<double>] = AnyStep<double>;
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
