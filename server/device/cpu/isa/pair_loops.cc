#include "tensord/server/device/cpu/isa/binary_loop.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

// The loop of FloorDivide and Remainder. fmod() takes 10 ns or more for an element, so it is called
// only for blocks in which FastFmod() can't compute an element. Both give the same rest.
template <typename F, typename T>
void Division(const void* a_data, int a_step, const void* b_data, int b_step, void* y_data,
              int64_t n) {
  constexpr int kBlock = kVectorLibmBlock;
  const T* a = static_cast<const T*>(a_data);
  const T* b = static_cast<const T*>(b_data);
  T* y = static_cast<T*>(y_data);
  T a_block[kBlock], b_block[kBlock], y_block[kBlock];
  for (T& element : a_block) element = *a;
  for (T& element : b_block) element = *b;
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t count = n - i < kBlock ? n - i : kBlock;
    if (a_step != 0) memcpy(a_block, a + i, count * sizeof(T));
    if (b_step != 0) memcpy(b_block, b + i, count * sizeof(T));
    int possible = 1;
    for (int j = 0; j < kBlock; ++j) {
      T rest;
      possible &= math::FastFmod(a_block[j], b_block[j], &rest) ? 1 : 0;
      y_block[j] = F::FromRest(a_block[j], b_block[j], rest);
    }
    if (possible == 0) {
      for (int j = 0; j < count; ++j) y_block[j] = F()(a_block[j], b_block[j]);
    }
    memcpy(y + i, y_block, count * sizeof(T));
  }
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
