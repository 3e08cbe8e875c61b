#include "tensord/server/device/cpu/isa/unary_loop.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {

void FillMathLoops(Loops& loops) {
#define TENSORD_FILL(name, Function, typing, cost, doc)          \
  FillUnary<Function, ElementwiseCost::k##cost>(                 \
      loops.unary[static_cast<int>(UnaryFunction::k##Function)], \
      MathTypesOf<ElementwiseTyping::k##typing>());
  TENSORD_TRANSCENDENTAL_OPS(TENSORD_FILL)
  TENSORD_ROUNDING_OPS(TENSORD_FILL)
#undef TENSORD_FILL
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
