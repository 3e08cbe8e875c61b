// Tells the compiler of the vector variants that libmvec has of libm's functions, so that it may
// call them in loops. <cmath> says so itself under -ffast-math only, because they are not correctly
// rounded: they are within 4 units in the last place, also for subnormals, and exact for NaN,
// infinities and zeros (checked for glibc 2.36). Must come before the functions' first use.
//
// The remainder of a vectorised loop would call the scalar function, and an element's value would
// depend on where it stands: loops over these functions run in whole blocks.
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

// Elements that such a loop takes at a time: a multiple of every vector length.
inline constexpr int kVectorLibmBlock = 32;

}  // namespace tensord::server::cpu
