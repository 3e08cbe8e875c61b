// Parts of the wire format of Protocol Buffers, for code that encodes messages by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tensord::wire {

enum Type : uint32_t { kVarint = 0, kFixed64 = 1, kDelimited = 2, kFixed32 = 5 };

// Returns the tag, which precedes the value of a field. The tag of a field number up to 15 has one
// byte.
constexpr uint32_t Tag(uint32_t field, Type type) { return field << 3 | type; }

inline constexpr size_t kMaxVarintBytes = 10;

// Writes up to kMaxVarintBytes bytes. Returns their number.
inline size_t WriteVarint(uint64_t value, char* out) {
  size_t size = 0;
  for (; value >= 0x80; value >>= 7) out[size++] = static_cast<char>(value | 0x80);
  out[size++] = static_cast<char>(value);
  return size;
}

inline void AppendVarint(uint64_t value, std::string* out) {
  char bytes[kMaxVarintBytes];
  out->append(bytes, WriteVarint(value, bytes));
}

}  // namespace tensord::wire
