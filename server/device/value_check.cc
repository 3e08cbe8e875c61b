#include "tensord/server/device/value_check.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tensord::server {
namespace {

// Returns the position of the first value that isn't a class. If there is none, returns `count`.
template <typename T>
int64_t FindBadClass(const T* values, int64_t count, int64_t classes, int64_t ignored) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t value = values[i];
    if ((value < 0 || value >= classes) && value != ignored) return i;
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
  if (bad.axis == kClassAxis) {
    return absl::InvalidArgumentError(
        absl::StrCat("class ", bad.value, " at [", absl::StrJoin(at, ", "), "] of input ",
                     InputOfKey(bad.key), " is out of range for ", bad.size, " classes"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "index ", bad.value, " at [", absl::StrJoin(at, ", "), "] of input ", InputOfKey(bad.key),
      " is out of range for axis ", bad.axis, " of size ", bad.size));
}

absl::Status CheckClasses(const KernelCall& call, int input, int64_t classes, int64_t ignored) {
  const Operand& values = call.inputs[input];
  const int64_t count = values.spec->num_elements();
  const bool wide = values.spec->dtype == DType::kInt64;
  const int64_t at = wide ? FindBadClass(values.As<int64_t>(), count, classes, ignored)
                          : FindBadClass(values.As<int32_t>(), count, classes, ignored);
  if (at == count) return absl::OkStatus();
  const int64_t value = wide ? values.As<int64_t>()[at] : values.As<int32_t>()[at];
  return BadIndexError({CheckKey(input, at), value, classes, kClassAxis, 0}, values.spec->shape);
}

}  // namespace tensord::server
