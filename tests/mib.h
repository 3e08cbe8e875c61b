#pragma once

#include <cstdint>

namespace tensord {

inline constexpr int64_t kMiB = 1 << 20;  // bytes

}  // namespace tensord
