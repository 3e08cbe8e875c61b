#include "tensord/server/device/cpu/isa/reduce.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

template <typename InType, typename AccType>
struct ProdPolicy {
  using In = InType;
  using Acc = AccType;
  static Acc Identity() { return Acc{1}; }
  static Acc Map(MathOf<In> x, double /*power*/) { return static_cast<Acc>(x); }
  static Acc Combine(Acc a, Acc b) { return Mul()(a, b); }
};

template <typename Acc, typename... Ts>
void FillProd(Loops& loops) {
  ReductionLoops* prod = loops.reduction[static_cast<int>(Reduction::kProd)];
  ((prod[kIndexOf<Ts>] = MakeReductionLoops<ProdPolicy<Ts, Acc>>()), ...);
}

}  // namespace

void FillProdLoops(Loops& loops) {
  FillProd<int64_t, Bool, uint8_t, int8_t, int32_t, uint32_t, int64_t, uint64_t>(loops);
  FillProd<double, float, double>(loops);  // a product of few float32 may leave float32's range
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
