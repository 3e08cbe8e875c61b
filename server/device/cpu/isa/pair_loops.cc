#include "tensord/server/device/cpu/isa/binary_loop.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

// The loop of FloorDivide and Remainder. fmod() takes 10 ns or more for an element, so it is called
// only for blocks in which FastFmod() can't compute an element. Both return the same remainder.
template <typename F, typename T>
void Division(const void* a, int a_step, const void* b, int b_step, void* y, int64_t n) {
  ForEachWholeBlock<T>(a, a_step, b, b_step, y, n,
                       [](const WholeBlock<T>& a, const WholeBlock<T>& b, WholeBlock<T>& y) {
                         int possible = 1;
                         for (int j = 0; j < kVectorLibmBlock; ++j) {
                           T rest;
                           possible &= math::FastFmod(a[j], b[j], &rest) ? 1 : 0;
                           y[j] = F::FromRest(a[j], b[j], rest);
                         }
                         if (possible != 0) return;
                         for (int j = 0; j < kVectorLibmBlock; ++j) y[j] = F()(a[j], b[j]);
                       });
}

}  // namespace

void FillPairLoops(Loops& loops) {
#define TENSORD_FILL(name, Function, typing, cost, doc) \
  FillBinary<Function, ElementwiseCost::k##cost>(       \
      loops.binary[static_cast<int>(BinaryFunction::k##Function)], FloatingTypes());
  TENSORD_FLOAT_PAIR_OPS(TENSORD_FILL)
#undef TENSORD_FILL
#define TENSORD_FILL(name, Function, typing, cost, doc)                           \
  loops.binary[static_cast<int>(BinaryFunction::k##Function)][kIndexOf<float>] =  \
      Division<Function, float>;                                                  \
  loops.binary[static_cast<int>(BinaryFunction::k##Function)][kIndexOf<double>] = \
      Division<Function, double>;
  TENSORD_DIVISION_OPS(TENSORD_FILL)
#undef TENSORD_FILL
  FillBinary<Nextafter, ElementwiseCost::kArithmetic>(
      loops.binary[static_cast<int>(BinaryFunction::kNextafter)], MathTypes<Half, BFloat16>());
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
