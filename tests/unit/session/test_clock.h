#pragma once

#include <chrono>

namespace tensord::server {

inline std::chrono::steady_clock::time_point
    now;  // what the tests' clocks return; a test advances it

}  // namespace tensord::server
