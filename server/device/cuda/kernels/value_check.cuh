// Functions with which kernels check values (check_cell.h). Only kernel files may include this
// file.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "tensord/server/device/check_cell.h"

namespace tensord::server::cuda {

// Writes a bad index to `cell`, unless the cell has one with a smaller key.
//
// A thread takes the guard by atomicCAS, writes the record, and releases the guard. The loop has
// the form in which the threads of one warp can't block each other: the thread that has the guard
// releases it in the same pass. The fences make each record that is written under the guard follow
// the one before, also in the host's memory (PTX ISA, "Memory Consistency Model": fence.sys and the
// atomic operations on the guard order the stores by causality).
__device__ inline void ReportBadIndex(const CheckCell& cell, const CheckRecord& bad) {
  if (cell.guard == nullptr) return;
  volatile unsigned long long* const key = &cell.guard->key;
  volatile CheckRecord* const record = cell.record;
  for (bool reported = false; !reported;) {
    const unsigned long long known = *key;
    if (known != 0 && known <= bad.key) return;
    if (atomicCAS(&cell.guard->locked, 0u, 1u) != 0u) continue;
    __threadfence_system();
    if (*key == 0 || bad.key < *key) {
      *key = bad.key;
      record->value = bad.value;
      record->size = bad.size;
      record->axis = bad.axis;
      record->step = bad.step;
      record->key = bad.key;
    }
    __threadfence_system();
    atomicExch(&cell.guard->locked, 0u);
    reported = true;
  }
}

// Returns the index for `value`, which is in [0, size). If `from_end` is true, negative values
// count from the end, otherwise they are out of range. If the value is out of range, reports it to
// `cell` and returns 0, so the kernel's accesses stay inside its operands. `input` is the number of
// the op's input that has the value, and `position` the value's position in the row-major order of
// that input. `axis` and `size` are those of the tensor that is indexed. `size` must be positive:
// inference refuses indices into an axis of size 0.
__device__ inline int64_t CheckedIndex(const CheckCell& cell, int input, int64_t position,
                                       int64_t value, int axis, int64_t size, bool from_end) {
  const int64_t index = value < 0 && from_end ? value + size : value;
  if (index >= 0 && index < size) return index;
  ReportBadIndex(cell, {CheckKey(input, position), value, size, axis, 0});
  return 0;
}

// Does the same for the number of a class, in [0, classes).
__device__ inline int64_t CheckedClass(const CheckCell& cell, int input, int64_t position,
                                       int64_t value, int64_t classes) {
  if (value >= 0 && value < classes) return value;
  ReportBadIndex(cell, {CheckKey(input, position), value, classes, kClassAxis, 0});
  return 0;
}

}  // namespace tensord::server::cuda
