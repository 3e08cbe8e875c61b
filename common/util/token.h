// The rules for the characters of a token.
#pragma once

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"

namespace tensord {

// The limit of a token's length. Longer tokens are rejected without hashing.
inline constexpr size_t kMaxTokenBytes = 256;

// Returns whether `token` has one to kMaxTokenBytes characters, all of them visible ASCII. It is
// sent in a header, which other characters could end.
inline bool IsToken(absl::string_view token) {
  return !token.empty() && token.size() <= kMaxTokenBytes &&
         std::all_of(token.begin(), token.end(),
                     [](unsigned char c) { return absl::ascii_isgraph(c); });
}

}  // namespace tensord
