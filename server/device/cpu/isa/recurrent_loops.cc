#include "tensord/server/device/cpu/isa/lanes.h"
#include "tensord/server/device/cpu/isa/vector_libm.h"
#include "tensord/server/device/recurrent_math.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

static_assert(kCellBlock % kVectorLibmBlock == 0);

template <typename Cell, typename T>
void Run(const void* const* in_data, void* const* out_data, int64_t n) {
  const T* in[Cell::kInputs];
  T* out[Cell::kOutputs];
  for (int j = 0; j < Cell::kInputs; ++j) in[j] = static_cast<const T*>(in_data[j]);
  for (int j = 0; j < Cell::kOutputs; ++j) out[j] = static_cast<T*>(out_data[j]);
  for (int64_t begin = 0; begin < n; begin += kCellBlock) {
    // Results don't overlap operands.
#pragma GCC ivdep
    for (int64_t i = begin; i < begin + kCellBlock; ++i) {
      T operands[Cell::kInputs], results[Cell::kOutputs];
      for (int j = 0; j < Cell::kInputs; ++j) operands[j] = in[j][i];
      Cell::template Run<T>(operands, results);
      for (int j = 0; j < Cell::kOutputs; ++j) out[j][i] = results[j];
    }
  }
}

template <typename T>
RecurrentLoops LoopsOf() {
  return {{Run<LstmCell<false>, T>, Run<LstmCell<true>, T>},
          {Run<LstmGatesBackward<false>, T>, Run<LstmGatesBackward<true>, T>},
          {Run<GruCell<false>, T>, Run<GruCell<true>, T>},
          {Run<GruGatesBackward<false>, T>, Run<GruGatesBackward<true>, T>}};
}

}  // namespace

void FillRecurrentLoops(NetworkLoops& loops) {
  loops.recurrent[kIndexOf<float>] = LoopsOf<float>();
  loops.recurrent[kIndexOf<double>] = LoopsOf<double>();
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
