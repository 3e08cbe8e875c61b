#include <string.h>

#include "tensord/server/device/cpu/isa/binary_loop.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

template <typename T>
void Where(const void* cond_data, int cond_step, const void* a_data, int a_step, const void* b_data,
           int b_step, void* y_data, int64_t n) {
  const uint8_t* cond = static_cast<const uint8_t*>(cond_data);
  const T* a = static_cast<const T*>(a_data);
  const T* b = static_cast<const T*>(b_data);
  T* y = static_cast<T*>(y_data);
  if (cond_step == 0) {
    const T* from = *cond != 0 ? a : b;
    const int step = *cond != 0 ? a_step : b_step;
    if (step == 0) {
      const T value = *from;
      for (int64_t i = 0; i < n; ++i) y[i] = value;
    } else if (from != y) {
      memcpy(y, from, n * sizeof(T));
    }
  } else if (a_step != 0 && b_step != 0) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = cond[i] != 0 ? a[i] : b[i];
  } else if (a_step != 0) {
    const T b0 = *b;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = cond[i] != 0 ? a[i] : b0;
  } else if (b_step != 0) {
    const T a0 = *a;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = cond[i] != 0 ? a0 : b[i];
  } else {
    const T a0 = *a, b0 = *b;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = cond[i] != 0 ? a0 : b0;
  }
}

}  // namespace

void FillBinaryLoops(Loops& loops) {
#define TENSORD_FILL(name, Function, typing, cost, doc)            \
  FillBinary<Function, ElementwiseCost::k##cost>(                  \
      loops.binary[static_cast<int>(BinaryFunction::k##Function)], \
      MathTypesOf<ElementwiseTyping::k##typing>());
  TENSORD_BASIC_ARITHMETIC_OPS(TENSORD_FILL)
  TENSORD_COMPARISON_OPS(TENSORD_FILL)
#undef TENSORD_FILL
  loops.where[0] = Where<uint8_t>;
  loops.where[1] = Where<uint16_t>;
  loops.where[2] = Where<uint32_t>;
  loops.where[3] = Where<uint64_t>;
  loops.where[4] = Where<Bytes16>;
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
