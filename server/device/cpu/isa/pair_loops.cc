#include "tensord/server/device/cpu/isa/binary_loop.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {

void FillPairLoops(Loops& loops) {
#define TENSORD_FILL(name, Function, typing, cost, doc) \
  FillBinary<Function, ElementwiseCost::k##cost>(       \
      loops.binary[static_cast<int>(BinaryFunction::k##Function)], FloatingTypes());
  TENSORD_FLOAT_PAIR_OPS(TENSORD_FILL)
  TENSORD_DIVISION_OPS(TENSORD_FILL)
#undef TENSORD_FILL
  FillBinary<Nextafter, ElementwiseCost::kArithmetic>(
      loops.binary[static_cast<int>(BinaryFunction::kNextafter)], MathTypes<Half, BFloat16>());
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
