// Converts any bytes to valid UTF-8 of a limited size.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace tensord {

// Returns the first characters of `text`, at most `max_bytes` bytes. Replaces each byte that isn't
// part of a valid UTF-8 character (RFC 3629) by "?". A protobuf `string` accepts the result.
std::string ToUtf8(absl::string_view text, size_t max_bytes);

}  // namespace tensord
