// The varint of protobuf's wire format.
#pragma once

#include <cstdint>
#include <string>

namespace tensord {

inline void AppendVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

}  // namespace tensord
