#include "tensord/server/device/value_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tensord::server {
namespace {

// Returns the position of the first value outside [-size, size). If there is none, returns `count`.
template <typename T>
int64_t FindBadIndex(const T* values, int64_t count, int64_t size) {
  constexpr int64_t kBlock = 1024;  // compilers vectorize a loop without an early end
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, count);
    bool bad = false;
    for (int64_t i = begin; i < end; ++i) bad |= values[i] < -size || values[i] >= size;
    if (!bad) continue;
    int64_t i = begin;
    while (values[i] >= -size && values[i] < size) ++i;
    return i;
  }
  return count;
}

}  // namespace

absl::Status BadIndexError(const CheckRecord& bad, const Shape& shape) {
  Dims at(shape.rank(), 0);
  int64_t left = PositionOfKey(bad.key);
  for (int d = shape.rank() - 1; d >= 0; --d) {
    at[d] = left % shape.dim(d);
    left /= shape.dim(d);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "index ", bad.value, " at [", absl::StrJoin(at, ", "), "] of input ", InputOfKey(bad.key),
      " is out of range for axis ", bad.axis, " of size ", bad.size));
}

absl::Status CheckIndices(const KernelCall& call, int input, int axis, int64_t size) {
  const Operand& indices = call.inputs[input];
  const int64_t count = indices.spec->num_elements();
  const bool wide = indices.spec->dtype == DType::kInt64;
  const int64_t at = wide ? FindBadIndex(indices.As<int64_t>(), count, size)
                          : FindBadIndex(indices.As<int32_t>(), count, size);
  if (at == count) return absl::OkStatus();
  const int64_t value = wide ? indices.As<int64_t>()[at] : indices.As<int32_t>()[at];
  return BadIndexError({CheckKey(input, at), value, size, axis, 0}, indices.spec->shape);
}

}  // namespace tensord::server
