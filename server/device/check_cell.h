// The cell to which a kernel reports a bad value, such as an index out of range, if it runs after
// its launch has returned. Plain data: nvcc and host compilers include this file.
//
// The kernel takes a CheckCell by value. Its threads read indices by CheckedIndex()
// (cuda/kernels/value_check.cuh), which reports a bad one. Of several bad values, the cell keeps
// the one with the smallest key, so the message of the error doesn't depend on the order of the
// threads.
//
// The threads synchronize on the guard, which is in the device's memory. Atomic functions on mapped
// host memory are not atomic for the host ("CUDA C++ Programming Guide", "Mapped Memory"), and each
// one takes a round trip over the bus. The record may be in host memory that the device can access:
// the thread that holds the guard writes it with plain stores. So the host needs no copy. It reads
// the record when an event after the kernel has completed.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define TENSORD_HOST_DEVICE __host__ __device__
#else
#define TENSORD_HOST_DEVICE
#endif

namespace tensord::server {

// The value of CheckRecord::axis if the bad value is the number of a class. There are `size`
// classes.
constexpr int32_t kClassAxis = -1;

// A bad index. If `key` is 0, no kernel has reported one.
struct CheckRecord {
  uint64_t key;   // CheckKey() of the input and the position
  int64_t value;  // the index as it stands in the input, possibly negative
  int64_t size;   // of the axis
  int32_t axis;   // of the tensor that is indexed; kClassAxis: `value` is the number of a class
  int32_t step;   // the number of the checked op in its graph; otherwise 0
};

// Both members are zero if no thread has reported.
struct CheckGuard {
  unsigned long long key;  // that of the record
  unsigned int locked;     // 1 while a thread writes the record
  unsigned int unused;
};

// Both pointers are null if nothing is to be reported.
struct CheckCell {
  CheckGuard* guard = nullptr;
  CheckRecord* record = nullptr;
};

// A cell of a graph, in the device's memory.
struct GraphCheckCell {
  CheckGuard guard;
  CheckRecord record;
};

// Returns the key of a value: the number of the input of the op, and the position of the element in
// the row-major order of that input. Keys are ordered by the input, then by the position.
constexpr int kCheckPositionBits = 48;
TENSORD_HOST_DEVICE constexpr uint64_t CheckKey(int input, int64_t position) {
  return (static_cast<uint64_t>(input) << kCheckPositionBits) + static_cast<uint64_t>(position) + 1;
}
TENSORD_HOST_DEVICE constexpr int InputOfKey(uint64_t key) {
  return static_cast<int>((key - 1) >> kCheckPositionBits);
}
TENSORD_HOST_DEVICE constexpr int64_t PositionOfKey(uint64_t key) {
  return static_cast<int64_t>((key - 1) & ((uint64_t{1} << kCheckPositionBits) - 1));
}

}  // namespace tensord::server

#undef TENSORD_HOST_DEVICE
