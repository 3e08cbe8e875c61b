// Unsigned integers of a given size, for kernels that move elements and don't interpret them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tensord::server::cuda {

inline constexpr int kMaxUnitBytes = 16;

// The largest power of two, up to kMaxUnitBytes, that divides all values passed to MustDivide().
class Unit {
 public:
  void MustDivide(int64_t bytes) { common_ |= static_cast<uint64_t>(bytes); }
  void MustDivide(const void* address) { common_ |= reinterpret_cast<uintptr_t>(address); }
  int64_t bytes() const { return static_cast<int64_t>(common_ & (~common_ + 1)); }

 private:
  uint64_t common_ = kMaxUnitBytes;
};

// Calls `f` with a value of the unsigned type that has `unit_bytes` bytes, and returns its result.
// If there is no such type, returns cudaErrorInvalidValue.
template <typename F>
cudaError_t WithUnit(int unit_bytes, F f) {
  switch (unit_bytes) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    case 8:
      return f(uint64_t{});
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace tensord::server::cuda
