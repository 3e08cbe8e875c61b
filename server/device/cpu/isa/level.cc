// The table of one instruction set level.
#include "tensord/server/device/cpu/isa/fill.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {

extern const Loops& Table();

const Loops& Table() {
  static const Loops* const table = [] {
    auto* loops = new Loops();
    FillUnaryLoops(*loops);
    FillBinaryLoops(*loops);
    FillCastLoops(*loops);
    FillSumLoops(*loops);
    FillExtremeLoops(*loops);
    FillNormLoops(*loops);
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
