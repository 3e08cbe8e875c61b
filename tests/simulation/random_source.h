// Pseudo-random numbers that depend on the seed only, and are the same on all platforms.
#pragma once

#include <cstdint>
#include <vector>

namespace tensord::simulation {

class RandomSource {
 public:
  explicit RandomSource(uint64_t seed) : state_(seed) {}

  // Returns a number from 0 to n - 1.
  int64_t Below(int64_t n) { return static_cast<int64_t>(Next() % static_cast<uint64_t>(n)); }
  bool OneIn(int64_t n) { return n > 0 && Below(n) == 0; }
  template <typename T>
  const T& Pick(const std::vector<T>& from) {
    return from[Below(static_cast<int64_t>(from.size()))];
  }

 private:
  uint64_t Next() {  // splitmix64
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  uint64_t state_;
};

}  // namespace tensord::simulation
