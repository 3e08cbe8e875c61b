// Errors in the values of an input, such as an index out of range.
//
// There are two kinds of backends:
// - The CPU's kernels check all values before they use them, and before they overwrite an input.
//   Launch() then returns INVALID_ARGUMENT, and the content of the output is unspecified.
// - If a backend runs kernels after Launch() has returned (Device::defers_checks), a kernel uses a
//   safe value instead of a bad one, and reports the bad one to a cell (check_cell.h). The engine
//   reads the cell when an event after the launch has completed (session/value_checks.h).
//
// Both kinds give the same error. The op's schema has `value_checked`.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "tensord/common/shape.h"
#include "tensord/server/device/check_cell.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

// Returns INVALID_ARGUMENT: "index 12 at [3, 0] of input 1 is out of range for axis 0 of size 10".
// `shape` is that of the input with the number InputOfKey(bad.key). The engine adds a prefix with
// the op and the tensor. For kClassAxis: "class 12 at [3, 0] of input 1 is out of range for 10
// classes".
absl::Status BadIndexError(const CheckRecord& bad, const Shape& shape);

// Returns the index in [0, size) for `value`, with negative values counted from the end. If the
// value is out of range, returns -1.
inline int64_t NormalIndex(int64_t value, int64_t size) {
  const int64_t index = value < 0 ? value + size : value;
  return index >= 0 && index < size ? index : -1;
}

// Checks that all elements of call.inputs[input], of int32 or int64, are numbers of classes: in
// [0, classes), or equal to `ignored`. If not, returns BadIndexError() of the first one that isn't.
// For backends that check before they write.
absl::Status CheckClasses(const KernelCall& call, int input, int64_t classes, int64_t ignored);

}  // namespace tensord::server
