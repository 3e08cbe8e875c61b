// Declares that libmvec has vector variants of functions of libm, so that the compiler may call
// them in loops. <cmath> declares that only under -ffast-math, because the variants aren't
// correctly rounded. Their errors are at most 4 units in the last place, also for subnormals. They
// are exact for NaN, infinities and zeros (checked for glibc 2.36). Include this header before the
// first use of the functions.
//
// The compiler would call the scalar function for the last elements of a vectorised loop. An
// element's value would then depend on its index. So loops over these functions process whole
// blocks.
#pragma once

#include <math.h>

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 35)
#define TENSORD_VECTOR_LIBM __attribute__((simd("notinbranch"), const))
#define TENSORD_VECTOR_LIBM_UNARY(name)              \
  TENSORD_VECTOR_LIBM float name##f(float) noexcept; \
  TENSORD_VECTOR_LIBM double name(double) noexcept;
#define TENSORD_VECTOR_LIBM_BINARY(name)                    \
  TENSORD_VECTOR_LIBM float name##f(float, float) noexcept; \
  TENSORD_VECTOR_LIBM double name(double, double) noexcept;
extern "C" {
TENSORD_VECTOR_LIBM_UNARY(exp)
TENSORD_VECTOR_LIBM_UNARY(expm1)
TENSORD_VECTOR_LIBM_UNARY(log)
TENSORD_VECTOR_LIBM_UNARY(log1p)
TENSORD_VECTOR_LIBM_UNARY(log2)
TENSORD_VECTOR_LIBM_UNARY(log10)
TENSORD_VECTOR_LIBM_UNARY(sin)
TENSORD_VECTOR_LIBM_UNARY(cos)
TENSORD_VECTOR_LIBM_UNARY(tan)
TENSORD_VECTOR_LIBM_UNARY(asin)
TENSORD_VECTOR_LIBM_UNARY(acos)
TENSORD_VECTOR_LIBM_UNARY(atan)
TENSORD_VECTOR_LIBM_UNARY(sinh)
TENSORD_VECTOR_LIBM_UNARY(cosh)
TENSORD_VECTOR_LIBM_UNARY(tanh)
TENSORD_VECTOR_LIBM_UNARY(asinh)
TENSORD_VECTOR_LIBM_UNARY(acosh)
TENSORD_VECTOR_LIBM_UNARY(atanh)
TENSORD_VECTOR_LIBM_UNARY(erf)
TENSORD_VECTOR_LIBM_UNARY(erfc)
TENSORD_VECTOR_LIBM_BINARY(pow)
TENSORD_VECTOR_LIBM_BINARY(atan2)
TENSORD_VECTOR_LIBM_BINARY(hypot)
}
#undef TENSORD_VECTOR_LIBM_UNARY
#undef TENSORD_VECTOR_LIBM_BINARY
#undef TENSORD_VECTOR_LIBM
#endif

namespace tensord::server::cpu {

// The number of elements of such a block: a multiple of every vector length.
inline constexpr int kVectorLibmBlock = 32;

}  // namespace tensord::server::cpu
