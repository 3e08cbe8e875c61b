#include "tensord/common/util/utf8.h"

#include <cstdint>

namespace tensord {
namespace {

// Returns the size of the valid character at the start of `text`, in bytes. Returns 0 if there is
// none.
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t size = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (size == 0 || size > text.size()) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool surrogate = first == 0xED && byte(1) >= 0xA0;
  const bool past_unicode = first == 0xF4 && byte(1) >= 0x90;
  return overlong || surrogate || past_unicode ? 0 : size;
}

}  // namespace

std::string ToUtf8(absl::string_view text, size_t max_bytes) {
  std::string result;
  while (!text.empty()) {
    const size_t size = CharacterBytes(text);
    if (result.size() + (size == 0 ? 1 : size) > max_bytes) break;
    if (size == 0) {
      result += '?';
    } else {
      result.append(text.data(), size);
    }
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return result;
}

}  // namespace tensord
