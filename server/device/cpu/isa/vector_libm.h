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
extern "C" {
TENSORD_VECTOR_LIBM float expf(float) noexcept;
TENSORD_VECTOR_LIBM float logf(float) noexcept;
TENSORD_VECTOR_LIBM float log1pf(float) noexcept;
TENSORD_VECTOR_LIBM float tanhf(float) noexcept;
TENSORD_VECTOR_LIBM float erff(float) noexcept;
TENSORD_VECTOR_LIBM float powf(float, float) noexcept;
TENSORD_VECTOR_LIBM double exp(double) noexcept;
TENSORD_VECTOR_LIBM double log(double) noexcept;
TENSORD_VECTOR_LIBM double log1p(double) noexcept;
TENSORD_VECTOR_LIBM double tanh(double) noexcept;
TENSORD_VECTOR_LIBM double erf(double) noexcept;
TENSORD_VECTOR_LIBM double pow(double, double) noexcept;
}
#undef TENSORD_VECTOR_LIBM
#endif

namespace tensord::server::cpu {

// The number of elements of such a block: a multiple of every vector length.
inline constexpr int kVectorLibmBlock = 32;

}  // namespace tensord::server::cpu
