// Seeds for callers that give none.
#pragma once

#include <cstdint>
#include <random>

namespace tensord::internal {

// Returns a seed from the system's random numbers. Thread-safe.
inline int64_t NewSeed() {
  std::random_device source;
  return static_cast<int64_t>(uint64_t{source()} << 32 | source());
}

}  // namespace tensord::internal
