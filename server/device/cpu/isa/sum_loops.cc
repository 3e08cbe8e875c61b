#include "tensord/server/device/cpu/isa/reduce.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {

void FillSumLoops(Loops& loops) {
  ReductionLoops* sum = loops.reduction[static_cast<int>(Reduction::kSum)];
  sum[kIndexOf<Bool>] = MakeReductionLoops<SumPolicy<Bool, int64_t>>();
  sum[kIndexOf<uint8_t>] = MakeReductionLoops<SumPolicy<uint8_t, int64_t>>();
  sum[kIndexOf<int8_t>] = MakeReductionLoops<SumPolicy<int8_t, int64_t>>();
  sum[kIndexOf<int32_t>] = MakeReductionLoops<SumPolicy<int32_t, int64_t>>();
  sum[kIndexOf<uint32_t>] = MakeReductionLoops<SumPolicy<uint32_t, int64_t>>();
  sum[kIndexOf<int64_t>] = MakeReductionLoops<SumPolicy<int64_t, int64_t>>();
  sum[kIndexOf<uint64_t>] = sum[kIndexOf<int64_t>];
  sum[kIndexOf<float>] = MakeReductionLoops<SumPolicy<float, float>>();
  sum[kIndexOf<double>] = MakeReductionLoops<SumPolicy<double, double>>();
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
