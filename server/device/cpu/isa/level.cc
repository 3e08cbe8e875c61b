// The table of one instruction set level. What the level doesn't have itself, it takes from the
// level TENSORD_LOWER_ISA_NAMESPACE.
#include "tensord/server/device/cpu/isa/fill.h"

#ifdef TENSORD_LOWER_ISA_NAMESPACE
namespace tensord::server::cpu::TENSORD_LOWER_ISA_NAMESPACE {
const Loops& Table();
}
#endif

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {

extern const Loops& Table();

const Loops& Table() {
  static const Loops* const table = [] {
#ifdef TENSORD_LOWER_ISA_NAMESPACE
    auto* loops = new Loops(TENSORD_LOWER_ISA_NAMESPACE::Table());
#else
    auto* loops = new Loops();
#endif
    FillUnaryLoops(*loops);
    FillMathLoops(*loops);
    FillBinaryLoops(*loops);
    FillPairLoops(*loops);
#ifdef TENSORD_ISA_INTEGER_LOOPS
    FillIntegerLoops(*loops);
#endif
    FillCastLoops(*loops);
    FillSumLoops(*loops);
    FillExtremeLoops(*loops);
    FillNormLoops(*loops);
    FillMomentLoops(*loops);
    FillProdLoops(*loops);
    FillCountLoops(*loops);
    FillScanLoops(*loops);
    FillArgLoops(*loops);
    FillSoftmaxLoops(*loops);
    FillRandomLoops(*loops);
    FillLayoutLoops(*loops);
    FillIntegerMatmulLoops(*loops);
    return loops;
  }();
  return *table;
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
