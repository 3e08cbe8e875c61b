// Converts hexadecimal digits to bytes. Abseil has no function for it that fits all supported
// versions: 20240722 deprecates the old one, and 20220623 lacks the new one.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace tensord {

// Returns the value of a hexadecimal digit, in upper or lower case.
constexpr int HexDigitValue(char digit) {
  return digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10;
}

// Returns one byte for every two digits. `hex` must consist of an even number of hexadecimal
// digits.
inline std::string HexToBytes(absl::string_view hex) {
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(HexDigitValue(hex[i]) * 16 + HexDigitValue(hex[i + 1])));
  }
  return bytes;
}

}  // namespace tensord
