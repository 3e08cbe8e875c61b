#include "tensord/server/device/cpu/isa/reduce.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

template <typename T>
struct CountPolicy : SumPolicy<T, int64_t> {
  static int64_t Map(MathOf<T> x, double /*power*/) { return x != MathOf<T>{0} ? 1 : 0; }
};

template <typename... Ts>
void FillCount(Loops& loops) {
  ReductionLoops* count = loops.reduction[static_cast<int>(Reduction::kCount)];
  ((count[kIndexOf<Ts>] = MakeReductionLoops<CountPolicy<Ts>>()), ...);
}

}  // namespace

void FillCountLoops(Loops& loops) {
  FillCount<Bool, uint8_t, int8_t, int32_t, uint32_t, int64_t, uint64_t, float, double>(loops);
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
