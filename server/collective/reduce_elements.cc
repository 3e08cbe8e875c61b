#include "tensord/server/collective/reduce_elements.h"

#include <algorithm>

#include "tensord/server/device/cpu/isa/loops.h"

namespace tensord::server {
namespace {

using cpu::BestLoops;
using cpu::Index;
using cpu::kBlockElements;

bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

cpu::BinaryLoop LoopOf(BinaryFunction function, DType dtype) {
  return BestLoops().binary[static_cast<int>(function)][Index(dtype)];
}

// out[i] = f(a[i], b[i * b_step]), computed in float32, block by block. If b_step is 0, `b` is one
// float32 value; otherwise `b` has `dtype`.
void InFloat(BinaryFunction function, DType dtype, void* out, const void* a, const void* b,
             int b_step, int64_t elements) {
  const auto widen = BestLoops().cast[Index(dtype)][Index(DType::kFloat32)];
  const auto narrow = BestLoops().cast[Index(DType::kFloat32)][Index(dtype)];
  const cpu::BinaryLoop loop = LoopOf(function, DType::kFloat32);
  alignas(64) float left[kBlockElements];
  alignas(64) float right[kBlockElements];
  for (int64_t i = 0; i < elements; i += kBlockElements) {
    const int64_t count = std::min<int64_t>(elements - i, kBlockElements);
    widen(static_cast<const uint16_t*>(a) + i, left, count);
    if (b_step != 0) widen(static_cast<const uint16_t*>(b) + i, right, count);
    loop(left, 1, b_step != 0 ? right : b, b_step, left, count);
    narrow(left, static_cast<uint16_t*>(out) + i, count);
  }
}

}  // namespace

void ReduceElements(CollectiveReduction reduction, DType dtype, void* out, const void* a,
                    const void* b, int64_t elements) {
  const BinaryFunction function =
      reduction == CollectiveReduction::kMax ? BinaryFunction::kMaximum : BinaryFunction::kAdd;
  if (IsHalf(dtype)) {
    InFloat(function, dtype, out, a, b, 1, elements);
  } else {
    LoopOf(function, dtype)(a, 1, b, 1, out, elements);
  }
}

void DivideElements(DType dtype, void* data, int64_t elements, int divisor) {
  const float of_float = static_cast<float>(divisor);
  const double of_double = divisor;
  if (IsHalf(dtype)) {
    InFloat(BinaryFunction::kDiv, dtype, data, data, &of_float, 0, elements);
  } else {
    const void* value = dtype == DType::kFloat32 ? static_cast<const void*>(&of_float) : &of_double;
    LoopOf(BinaryFunction::kDiv, dtype)(data, 1, value, 0, data, elements);
  }
}

}  // namespace tensord::server
