// Divides long loops into pieces, between which a thread checks whether its op must stop. Only
// files that are compiled once for each level may include this header.
#pragma once

#include "tensord/server/device/cpu/isa/loops.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {

// Calls fn(begin, end) for ranges that together are [0, n), in order. `unit_elements` is the number
// of elements of one of the n units. If the op must stop, returns early. A loop over few elements
// never stops.
template <typename Fn>
void InPieces(int64_t n, int64_t unit_elements, Fn fn) {
  const int64_t piece =
      unit_elements < kMaxLoopElements ? kMaxLoopElements / unit_elements : int64_t{1};
  for (int64_t begin = 0; begin < n; begin += piece) {
    if (begin > 0 && LoopMustStop()) return;
    fn(begin, n - begin < piece ? n : begin + piece);
  }
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
