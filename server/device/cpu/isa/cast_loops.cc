#if defined(__F16C__)
#include <immintrin.h>
#endif
#include <string.h>

#include "tensord/server/device/cpu/isa/fill.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

template <typename From, typename To>
void Cast(const void* x_data, void* y_data, int64_t n) {
  const From* __restrict x = static_cast<const From*>(x_data);
  To* __restrict y = static_cast<To*>(y_data);
  for (int64_t i = 0; i < n; ++i) y[i] = Narrow<To>(CastTo<MathOf<To>>()(Widen(x[i])));
}

#if defined(__F16C__)
#if defined(__AVX512F__)
constexpr int kCastWidth = 16;
void WidenHalves(const uint16_t* x, float* y) {
  _mm512_storeu_ps(y, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x))));
}
void NarrowToHalves(const float* x, uint16_t* y) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(y),
                      _mm512_cvtps_ph(_mm512_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT));
}
#else
constexpr int kCastWidth = 8;
void WidenHalves(const uint16_t* x, float* y) {
  _mm256_storeu_ps(y, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x))));
}
void NarrowToHalves(const float* x, uint16_t* y) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(y),
                   _mm256_cvtps_ph(_mm256_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT));
}
#endif

// Calls `convert` for kCastWidth elements at a time. Copies the last elements to a padded block.
template <typename X, typename Y, void (*convert)(const X*, Y*)>
void CastHalves(const void* x_data, void* y_data, int64_t n) {
  const X* x = static_cast<const X*>(x_data);
  Y* y = static_cast<Y*>(y_data);
  int64_t i = 0;
  for (; i + kCastWidth <= n; i += kCastWidth) convert(x + i, y + i);
  if (i == n) return;
  X in[kCastWidth] = {};
  Y out[kCastWidth];
  memcpy(in, x + i, (n - i) * sizeof(X));
  convert(in, out);
  memcpy(y + i, out, (n - i) * sizeof(Y));
}

void FillHalfCasts(Loops& loops) {
  loops.cast[kIndexOf<Half>][kIndexOf<float>] = CastHalves<uint16_t, float, WidenHalves>;
  loops.cast[kIndexOf<float>][kIndexOf<Half>] = CastHalves<float, uint16_t, NarrowToHalves>;
}
#else
void FillHalfCasts(Loops& loops) {
  loops.cast[kIndexOf<Half>][kIndexOf<float>] = Cast<Half, float>;
  loops.cast[kIndexOf<float>][kIndexOf<Half>] = Cast<float, Half>;
}
#endif

template <typename From, typename To>
constexpr CastLoop LoopFor() {
  constexpr bool kCopies = std::is_same_v<SignedOf<From>, SignedOf<To>>;
  if constexpr (kCopies) {
    return nullptr;
  } else {
    return Cast<CastKernelFrom<From, To>, CastKernelTo<From, To>>;
  }
}

template <typename From, typename... Tos>
void FillRow(Loops& loops) {
  ((loops.cast[kIndexOf<From>][kIndexOf<Tos>] = LoopFor<From, Tos>()), ...);
}

template <typename... Ts>
void FillSquare(Loops& loops, MathTypes<Ts...>) {
  (FillRow<Ts, Ts...>(loops), ...);
}

}  // namespace

void FillCastLoops(Loops& loops) {
  FillSquare(loops, AllMathTypes());
  FillRow<int16_t, int32_t, uint32_t, float>(loops);
  FillRow<uint16_t, int32_t, uint32_t, float>(loops);
  FillRow<int32_t, int16_t, uint16_t>(loops);
  FillRow<uint32_t, int16_t, uint16_t>(loops);
  FillRow<float, int16_t, uint16_t>(loops);
  FillRow<double, int16_t, uint16_t>(loops);
  FillHalfCasts(loops);
  FillRow<BFloat16, float>(loops);
  FillRow<float, BFloat16>(loops);
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
