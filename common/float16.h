// The two 16-bit floating types. They only store values: arithmetic on them is done in float.
#pragma once

#include <cstdint>
#include <type_traits>

// Marks functions that run on the host and, if nvcc compiles them, also on the device.
#if defined(__CUDACC__)
#define TENSORD_HD __host__ __device__
#else
#define TENSORD_HD
#endif

namespace tensord {

// Conversions to float are exact. Conversions from float round to nearest, ties to even: a value
// past the largest finite one becomes infinity, and a NaN becomes a quiet NaN with the same sign.
// The results don't change if the processor flushes float subnormals to zero.
namespace float16_internal {

constexpr TENSORD_HD float HalfBitsToFloat(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, magnitude) | sign);
  }
  if (exponent == 31) {
    const uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return __builtin_bit_cast(float, sign | 0x7f800000u | (mantissa << 13) | quiet);
  }
  return __builtin_bit_cast(float, sign | ((exponent + 112) << 23) | (mantissa << 13));
}

constexpr TENSORD_HD uint16_t FloatToHalfBits(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t result = 0;
  if (magnitude > 0x7f800000u) {
    result = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520: halfway past the largest, 65504
    result = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // 2^-14: below it the result is subnormal
    // The sum with 0.5 has a unit in the last place of 2^-24, that of a subnormal half.
    const float sum = __builtin_bit_cast(float, magnitude) + 0.5f;
    result = __builtin_bit_cast(uint32_t, sum) - 0x3f000000u;
  } else {
    result = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  return static_cast<uint16_t>(sign | result);
}

constexpr TENSORD_HD float BFloat16BitsToFloat(uint16_t bits) {
  return __builtin_bit_cast(float, uint32_t{bits} << 16);
}

constexpr TENSORD_HD uint16_t FloatToBFloat16Bits(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace float16_internal

// IEEE 754 binary16. Trivially copyable. Like a float, it is uninitialized until it is set.
// Converts to float implicitly. A static_cast from any arithmetic type converts through float.
struct Half {
  uint16_t bits;

  Half() = default;
  explicit constexpr TENSORD_HD Half(float value)
      : bits(float16_internal::FloatToHalfBits(value)) {}
  static constexpr TENSORD_HD Half FromBits(uint16_t bits) {
    Half half(0.0f);
    half.bits = bits;
    return half;
  }
  constexpr TENSORD_HD operator float() const {  // NOLINT(google-explicit-constructor): lossless
    return float16_internal::HalfBitsToFloat(bits);
  }
};

// The upper half of a binary32. Otherwise it works as Half does.
struct BFloat16 {
  uint16_t bits;

  BFloat16() = default;
  explicit constexpr TENSORD_HD BFloat16(float value)
      : bits(float16_internal::FloatToBFloat16Bits(value)) {}
  static constexpr TENSORD_HD BFloat16 FromBits(uint16_t bits) {
    BFloat16 bfloat16(0.0f);
    bfloat16.bits = bits;
    return bfloat16;
  }
  constexpr TENSORD_HD operator float() const {  // NOLINT(google-explicit-constructor): lossless
    return float16_internal::BFloat16BitsToFloat(bits);
  }
};

static_assert(sizeof(Half) == 2 && std::is_trivial_v<Half>);
static_assert(sizeof(BFloat16) == 2 && std::is_trivial_v<BFloat16>);

}  // namespace tensord
