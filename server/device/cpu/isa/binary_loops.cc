#include <string.h>

#include "tensord/server/device/cpu/isa/fill.h"
#include "tensord/server/device/cpu/isa/vector_libm.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

// The storage type of F's result: Bool if F returns bool, otherwise T.
template <typename F, typename T>
using ResultOf =
    std::conditional_t<std::is_same_v<decltype(F()(MathOf<T>(), MathOf<T>())), bool>, Bool, T>;

template <typename F, typename T>
void Binary(const void* a_data, int a_step, const void* b_data, int b_step, void* y_data,
            int64_t n) {
  using Y = ResultOf<F, T>;
  const T* a = static_cast<const T*>(a_data);
  const T* b = static_cast<const T*>(b_data);
  Y* y = static_cast<Y*>(y_data);
  if (a_step != 0 && b_step != 0) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = Narrow<Y>(F()(Widen(a[i]), Widen(b[i])));
  } else if (a_step != 0) {
    const MathOf<T> b0 = Widen(*b);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = Narrow<Y>(F()(Widen(a[i]), b0));
  } else {
    // If both steps are 0, n is 1.
    const MathOf<T> a0 = Widen(*a);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = Narrow<Y>(F()(a0, Widen(b[i])));
  }
}

// For functions that call libm. Processes only whole blocks: the last one is padded.
template <typename F, typename T>
void BinaryLibm(const void* a_data, int a_step, const void* b_data, int b_step, void* y_data,
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
    for (int j = 0; j < kBlock; ++j) y_block[j] = F()(a_block[j], b_block[j]);
    memcpy(y + i, y_block, count * sizeof(T));
  }
}

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

template <typename F, ElementwiseCost cost, typename T>
constexpr BinaryLoop LoopFor() {
  if constexpr (cost == ElementwiseCost::kLibm && std::is_floating_point_v<T>) {
    return BinaryLibm<F, T>;
  } else {
    return Binary<F, T>;
  }
}

template <typename F, ElementwiseCost cost, typename... Ts>
void Fill(BinaryLoop (&loops)[kDTypeCount], MathTypes<Ts...>) {
  ((loops[kIndexOf<Ts>] = LoopFor<F, cost, Ts>()), ...);
}

}  // namespace

void FillBinaryLoops(Loops& loops) {
#define TENSORD_FILL(name, Function, typing, cost, doc)            \
  Fill<Function, ElementwiseCost::k##cost>(                        \
      loops.binary[static_cast<int>(BinaryFunction::k##Function)], \
      MathTypesOf<ElementwiseTyping::k##typing>());
  TENSORD_BINARY_OPS(TENSORD_FILL)
#undef TENSORD_FILL
  loops.where[0] = Where<uint8_t>;
  loops.where[1] = Where<uint16_t>;
  loops.where[2] = Where<uint32_t>;
  loops.where[3] = Where<uint64_t>;
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
