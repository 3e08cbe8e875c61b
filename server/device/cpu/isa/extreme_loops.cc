#include "tensord/server/device/cpu/isa/reduce.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

template <typename... Ts>
void Fill(Loops& loops) {
  ReductionLoops* max = loops.reduction[static_cast<int>(Reduction::kMax)];
  ReductionLoops* min = loops.reduction[static_cast<int>(Reduction::kMin)];
  ((max[kIndexOf<Ts>] = MakeReductionLoops<MaxPolicy<Ts>>()), ...);
  ((min[kIndexOf<Ts>] = MakeReductionLoops<MinPolicy<Ts>>()), ...);
}

}  // namespace

void FillExtremeLoops(Loops& loops) {
  Fill<Bool, uint8_t, int8_t, int32_t, int64_t, float, double>(loops);
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
