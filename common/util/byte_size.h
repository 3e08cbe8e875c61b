// Parses sizes such as "2GiB".
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tensord {

// The form that ParseByteSize() accepts, for help texts.
inline constexpr char kByteSizeForm[] =
    "bytes, or a number with KiB, MiB, GiB, TiB, KB, MB, GB or TB, such as 1.5GiB";

// Returns the bytes of a size such as "2GiB", "512 MiB", "1e9", "1048576" or "0", rounded down. If
// `text` isn't a size, is negative or exceeds int64, returns INVALID_ARGUMENT with the text and the
// accepted form.
absl::StatusOr<int64_t> ParseByteSize(absl::string_view text);

}  // namespace tensord
