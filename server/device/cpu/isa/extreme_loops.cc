#include "tensord/server/device/cpu/isa/reduce.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

template <typename... Ts>
void FillExtreme(Loops& loops, MathTypes<Ts...>) {
  ReductionLoops* max = loops.reduction[static_cast<int>(Reduction::kMax)];
  ReductionLoops* min = loops.reduction[static_cast<int>(Reduction::kMin)];
  ((max[kIndexOf<Ts>] = MakeReductionLoops<MaxPolicy<Ts>>()), ...);
  ((min[kIndexOf<Ts>] = MakeReductionLoops<MinPolicy<Ts>>()), ...);
}

}  // namespace

void FillExtremeLoops(Loops& loops) { FillExtreme(loops, AllMathTypes()); }

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
