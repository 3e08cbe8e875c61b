// Random numbers that have the same bits on every device. Element i of a tensor depends only on the
// seed, the stream and i.
//
// The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011) with key (low, high word of the seed) and counter (low, high word of the block, low, high
// word of the stream). A block holds four 32-bit words:
//   float32, float16, bfloat16, dropout   one word per element: word i % 4 of block i / 4
//   float64, randint                      two words per element, low word first: block i / 2
// The normal distribution computes two elements from two uniform numbers. So elements i and i + 1,
// i even, are computed together.
//
// Logarithm, sine and cosine use only + - * / and sqrt. IEEE 754 defines the rounding of these, so
// they give the same bits everywhere if the compiler doesn't fuse a product with a sum. The host's
// files that include this header are compiled with -ffp-contract=off. Device code uses the
// intrinsics below. float16 and bfloat16 elements are rounded float32 values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tensord/common/float16.h"
#include "tensord/server/device/random_parameters.h"

#ifndef TENSORD_ISA_NAMESPACE
#define TENSORD_ISA_NAMESPACE portable
#endif

namespace tensord::server {
inline namespace TENSORD_ISA_NAMESPACE {

// ---------------------------------------------------------------- the generator

struct PhiloxBlock {
  uint32_t word[4];
};

inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53, kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9, kPhiloxWeyl1 = 0xBB67AE85;

TENSORD_HD inline PhiloxBlock Philox(const RandomStream& stream, uint64_t block) {
  auto key0 = static_cast<uint32_t>(stream.seed), key1 = static_cast<uint32_t>(stream.seed >> 32);
  auto c0 = static_cast<uint32_t>(block), c1 = static_cast<uint32_t>(block >> 32);
  auto c2 = static_cast<uint32_t>(stream.stream), c3 = static_cast<uint32_t>(stream.stream >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kPhiloxMultiplier0} * c0;
    const uint64_t product1 = uint64_t{kPhiloxMultiplier1} * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c1 = static_cast<uint32_t>(product1);
    c3 = static_cast<uint32_t>(product0);
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return {{c0, c1, c2, c3}};
}

// Returns the random bits of element `half` (0 or 1) of a block that has two elements.
TENSORD_HD inline uint64_t Word64(const PhiloxBlock& block, int half) {
  return uint64_t{block.word[2 * half + 1]} << 32 | block.word[2 * half];
}

// ---------------------------------------------------------------- arithmetic that is never fused

namespace exact {

TENSORD_HD inline double Mul(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

TENSORD_HD inline double Add(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dadd_rn(a, b);
#else
  return a + b;
#endif
}

TENSORD_HD inline double Div(double a, double b) {
#ifdef __CUDA_ARCH__
  return __ddiv_rn(a, b);
#else
  return a / b;
#endif
}

TENSORD_HD inline float Div(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

TENSORD_HD inline float Mul(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

TENSORD_HD inline float Add(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

TENSORD_HD inline uint64_t Bits(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

TENSORD_HD inline double FromBits(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

// These conversions are exact. Compilers vectorise them even if the instruction set has no
// conversions of 64-bit integers. The first one requires |x| < 2^31.
TENSORD_HD inline double ToDouble(int64_t x) {
  return FromBits(0x4338000000000000 + static_cast<uint64_t>(x)) - 0x1.8p52;
}
TENSORD_HD inline double ToDouble(uint32_t x) { return FromBits(0x4330000000000000 | x) - 0x1p52; }
// Requires x < 2^53.
TENSORD_HD inline double ToDouble(uint64_t x) {
  return Add(Mul(ToDouble(static_cast<uint32_t>(x >> 32)), 0x1p32),
             ToDouble(static_cast<uint32_t>(x)));
}

// Returns c[0] + c[1] x + c[2] x^2 + ... by Horner's rule.
template <int kTerms>
TENSORD_HD inline double Polynomial(const double (&c)[kTerms], double x) {
  double sum = c[kTerms - 1];
  for (int i = kTerms - 2; i >= 0; --i) sum = Add(Mul(sum, x), c[i]);
  return sum;
}

// Returns ln x of a normal, finite x > 0, with an error of about one ulp. x = 2^e m with m in
// [sqrt(1/2), sqrt(2)), and ln m = 2 artanh s, s = (m - 1) / (m + 1).
TENSORD_HD inline double Ln(double x) {
  constexpr double kLn2High = 0x1.62e42fee00000p-1;  // ends in zeros: its product with e is exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr uint64_t kSqrtHalfBits = 0x3fe6a09e667f3bcd;
  const uint64_t bits = Bits(x);
  // e is the exponent of the largest power of two that is at most x / sqrt(1/2).
  const int64_t e =
      static_cast<int64_t>((bits - kSqrtHalfBits + (uint64_t{1} << 63)) >> 52) - (1 << 11);
  const double m = FromBits(bits - (static_cast<uint64_t>(e) << 52));
  const double s = (m - 1.0) / (m + 1.0);
  const double z = Mul(s, s);
  const double c[] = {1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11,
                      1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21};
  const double artanh = Add(s, Mul(Mul(s, z), Polynomial(c, z)));
  const double ed = ToDouble(e);
  return Add(Mul(ed, kLn2High), Add(Mul(ed, kLn2Low), Mul(2.0, artanh)));
}

// Computes sin and cos of turn * (2 pi), 0 <= turn < 1, with an error of about one ulp. First
// subtracts the nearest quarter turn, which is exact in turns. The remaining angle is within
// +-pi/4, and Taylor's series computes its sin and cos.
TENSORD_HD inline void SinCosTurn(double turn, double* sin, double* cos) {
  const auto quarters = static_cast<int32_t>(Add(Mul(turn, 4.0), 0.5));  // 0 .. 4
  const double x = Mul(Add(turn, Mul(-0.25, static_cast<double>(quarters))), 0x1.921fb54442d18p+2);
  const double z = Mul(x, x);
  const double s[] = {-1.0 / 6,        1.0 / 120,        -1.0 / 5040,         1.0 / 362880,
                      -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000};
  const double c[] = {-1.0 / 2,       1.0 / 24,        -1.0 / 720,          1.0 / 40320,
                      -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200., 1.0 / 20922789888000.};
  const double sin_x = Add(x, Mul(Mul(x, z), Polynomial(s, z)));
  const double cos_x = Add(1.0, Mul(z, Polynomial(c, z)));
  const bool swap = (quarters & 1) != 0;
  const double sin_q = swap ? cos_x : sin_x;
  const double cos_q = swap ? sin_x : cos_x;
  *sin = (quarters & 2) != 0 ? -sin_q : sin_q;
  *cos = ((quarters + 1) & 2) != 0 ? -cos_q : cos_q;
}

}  // namespace exact

// ---------------------------------------------------------------- uniform

// The range [low, high). If low == high, all draws are low.
template <typename T>
struct UniformRange {
  T low;
  T width;
  T highest;  // the largest value below high; a limit, because low + u * width may round up to high

  TENSORD_HD UniformRange(T low_bound, T high_bound)
      : low(low_bound),
        width(exact::Add(high_bound, -low_bound)),
        highest(low_bound < high_bound ? std::nextafter(high_bound, low_bound) : low_bound) {}
};

// Returns the largest value of T, a 16-bit type, that is below `high`. If `low` is larger, returns
// `low`. float32 values are limited to it before they are rounded to T.
template <typename T>
float HighestBelow(float low, float high) {
  constexpr uint16_t kSign = 0x8000;
  T value = static_cast<T>(high);
  if (!(static_cast<float>(value) < high)) {
    const bool zero = (value.bits & ~kSign) == 0;
    const bool negative = (value.bits & kSign) != 0;
    value.bits = static_cast<uint16_t>(zero       ? kSign + 1
                                       : negative ? value.bits + 1
                                                  : value.bits - 1);
  }
  return std::max(low, static_cast<float>(value));
}

TENSORD_HD inline float UniformFloat(uint32_t word, const UniformRange<float>& range) {
  const float u = static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24f;
  const float value = exact::Add(range.low, exact::Mul(u, range.width));
  return value < range.highest ? value : range.highest;
}

TENSORD_HD inline double UniformDouble(uint64_t word, const UniformRange<double>& range) {
  const double u = exact::ToDouble(word >> 11) * 0x1p-53;
  const double value = exact::Add(range.low, exact::Mul(u, range.width));
  return value < range.highest ? value : range.highest;
}

// ---------------------------------------------------------------- integers

// Returns the upper 64 bits of a * b. Uses products of 32-bit numbers, so that loops vectorise.
TENSORD_HD inline uint64_t MultiplyHigh(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  constexpr uint64_t kLow = 0xffffffff;
  const uint64_t low = (a & kLow) * (b & kLow), cross_a = (a >> 32) * (b & kLow);
  const uint64_t cross_b = (a & kLow) * (b >> 32), high = (a >> 32) * (b >> 32);
  const uint64_t middle = (low >> 32) + (cross_a & kLow) + (cross_b & kLow);
  return high + (cross_a >> 32) + (cross_b >> 32) + (middle >> 32);
#endif
}

// Maps 64 random bits to the range (Lemire, "Fast random integer generation in an interval", 2019,
// without the rejection). The probability of an integer differs from 1 / count by less than 2^-64.
TENSORD_HD inline uint64_t UniformInteger(uint64_t word, const RandintRange& range) {
  return range.low + MultiplyHigh(word, range.count);
}

// ---------------------------------------------------------------- dropout

// Returns the rule by which an element becomes 0 with the probability p. Requires 0 <= p <= 1.
inline DropoutRule MakeDropoutRule(double p) {
  return {static_cast<uint32_t>(std::ceil(p * 0x1p24)), 1 - p};
}

TENSORD_HD inline bool IsKept(uint32_t word, uint32_t first_kept) {
  return (word >> 8) >= first_kept;
}

// ---------------------------------------------------------------- normal

// Computes two independent standard normals by the method of Box and Muller (1958). u1 in (0, 1]
// determines the radius, and u2 in [0, 1) the angle.
TENSORD_HD inline void BoxMuller(double u1, double u2, double* z0, double* z1) {
  const double radius = ::sqrt(exact::Mul(-2.0, exact::Ln(u1)));
  double sin, cos;
  exact::SinCosTurn(u2, &sin, &cos);
  *z0 = exact::Mul(radius, cos);
  *z1 = exact::Mul(radius, sin);
}

// Computes the standard normals of a pair of float32 elements, in double.
TENSORD_HD inline void NormalPair32(uint32_t word0, uint32_t word1, double* z0, double* z1) {
  BoxMuller(exact::Mul(exact::Add(exact::ToDouble(word0), 1.0), 0x1p-32),
            exact::Mul(exact::ToDouble(word1), 0x1p-32), z0, z1);
}

// Computes the standard normals of a pair of float64 elements.
TENSORD_HD inline void NormalPair64(uint64_t word0, uint64_t word1, double* z0, double* z1) {
  BoxMuller(exact::Mul(exact::Add(exact::ToDouble(word0 >> 11), 1.0), 0x1p-53),
            exact::Mul(exact::ToDouble(word1 >> 11), 0x1p-53), z0, z1);
}

// Returns mean + stddev z. A float32 element is the rounded result.
TENSORD_HD inline double ScaleNormal(double z, double mean, double stddev) {
  return exact::Add(mean, exact::Mul(stddev, z));
}

}  // namespace TENSORD_ISA_NAMESPACE
}  // namespace tensord::server
