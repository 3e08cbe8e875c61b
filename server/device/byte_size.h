// Parses sizes such as "2GiB".
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tensord::server {

// What ParseByteSize takes, for help texts.
inline constexpr char kByteSizeForm[] =
    "bytes, or a number with KiB, MiB, GiB, TiB, KB, MB, GB or TB, such as 1.5GiB";

// "2GiB", "512 MiB", "1e9", "1048576", "0", in bytes, rounded down. INVALID_ARGUMENT, with the text
// and the form, for anything else, less than nothing and more than int64 holds.
absl::StatusOr<int64_t> ParseByteSize(absl::string_view text);

}  // namespace tensord::server
