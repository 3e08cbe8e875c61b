// The loops of ops that are mostly used with integers. The level v4 has none of its own: it uses
// those of v3.
#include "tensord/server/device/cpu/isa/binary_loop.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {

void FillIntegerLoops(Loops& loops) {
#define TENSORD_FILL(name, Function, typing, cost, doc) \
  FillBinary<Function, ElementwiseCost::k##cost>(       \
      loops.binary[static_cast<int>(BinaryFunction::k##Function)], IntegerTypes());
  TENSORD_DIVISION_OPS(TENSORD_FILL)
#undef TENSORD_FILL
#define TENSORD_FILL(name, Function, typing, cost, doc)            \
  FillBinary<Function, ElementwiseCost::k##cost>(                  \
      loops.binary[static_cast<int>(BinaryFunction::k##Function)], \
      MathTypesOf<ElementwiseTyping::k##typing>());
  TENSORD_BIT_OPS(TENSORD_FILL)
#undef TENSORD_FILL
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
