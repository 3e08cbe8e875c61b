#include "tensord/tests/cuda_emulation/handles.h"

#include <atomic>

namespace tensord::cuda_emulation {

uintptr_t NewHandleValue() {
  // This isn't a canonical address on x86-64, so an access through it faults.
  constexpr uintptr_t kFirst = uintptr_t{0xc0da} << 48;
  constexpr uintptr_t kStep = 16;
  static std::atomic<uintptr_t> next = kFirst;
  return next.fetch_add(kStep);
}

}  // namespace tensord::cuda_emulation
