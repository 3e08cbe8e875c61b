// Scalars as words of a packed op (v1.Batch in proto/tensord/v1/tensord.proto).
#pragma once

#include <cstdint>

namespace tensord {

// Returns an integer in zigzag form: 0, -1, 1, -2, … become 0, 1, 2, 3, …. A small integer then is
// a small word, which takes few bytes as a varint.
constexpr uint64_t IntToWord(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}
constexpr int64_t IntFromWord(uint64_t word) {
  return static_cast<int64_t>((word >> 1) ^ (~(word & 1) + 1));
}

// Returns the bits of a double with the bytes in reverse order. If the double has a short mantissa,
// the last bytes of its bits are zero, so the word is small: 2.0 takes one byte as a varint.
constexpr uint64_t FloatToWord(double value) {
  return __builtin_bswap64(__builtin_bit_cast(uint64_t, value));
}
constexpr double FloatFromWord(uint64_t word) {
  return __builtin_bit_cast(double, __builtin_bswap64(word));
}

}  // namespace tensord
