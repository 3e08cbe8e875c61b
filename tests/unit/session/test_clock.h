#pragma once

#include <chrono>

namespace tensord::server {

inline std::chrono::steady_clock::time_point now;  // of the clock that a test moves

}  // namespace tensord::server
