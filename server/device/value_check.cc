#include "tensord/server/device/value_check.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tensord::server {

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

}  // namespace tensord::server
