// The kernels of the CPU backend, and the context that they run in.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/server/device/cpu/isa/loops.h"
#include "tensord/server/device/cpu/team.h"
#include "tensord/server/device/device.h"
#include "tensord/server/device/scratch_memory.h"
#include "tensord/server/device/slabs.h"

namespace tensord::server::cpu {

class OneDnn;

// The objects of a device that its kernels use. A context whose team has several threads is used
// only by the device's executor thread.
struct Context {
  Team team;
  const Loops& loops;
  OneDnn& onednn;
};

// Computes call.output() before it returns. Inference has checked the arguments, so kernels don't
// check them again. For dtypes that inference doesn't accept, returns NoKernel().
using Kernel = absl::Status (*)(const Context& ctx, const KernelCall& call);

// Returns INTERNAL: "cpu: no kernel for add over bool".
absl::Status NoKernel(const KernelCall& call);

// Memory for use during a kernel, aligned to 64 bytes.
class Scratch {
 public:
  Scratch() = default;

  void* data() const { return small_ != nullptr ? small_.get() : memory_.data(); }
  template <typename T>
  T* As() const {
    return static_cast<T*>(data());
  }

 private:
  friend absl::StatusOr<Scratch> MakeScratch(const KernelCall& call, int64_t size_bytes);

  struct FreeSmall {
    void operator()(void* block) const { Slabs::Free(block); }
  };

  std::unique_ptr<void, FreeSmall> small_;
  ScratchMemory memory_;
};

// Allocates from Slabs, or if `size_bytes` is larger than kMaxUnchargedBytes, as ScratchMemory
// does, with the same errors. If `size_bytes` is 0, data() is null.
absl::StatusOr<Scratch> MakeScratch(const KernelCall& call, int64_t size_bytes);

// y[0, n) = x[0, n), converted to another dtype or copied. Runs on the calling thread.
void Convert(const Loops& loops, DType from, const void* x, DType to, void* y, int64_t n);

// Writes `value` to `y` as one element of the real dtype `to`. `value` must be a bool, an int64 or a
// double.
void ConvertNumber(const Loops& loops, const AttrValue& value, DType to, void* y);

// Does the same as Convert() on the whole team.
void ConvertInParallel(const Context& ctx, DType from, const void* x, DType to, void* y, int64_t n);

// Returns the dtype in which elements of `dtype` are computed: float32 or int32 for 16-bit dtypes,
// otherwise `dtype`.
constexpr DType ComputeDType(DType dtype) {
  if (SizeOf(dtype) != 2) return dtype;
  return IsFloating(dtype) ? DType::kFloat32 : DType::kInt32;
}
constexpr bool Is16Bit(DType dtype) { return ComputeDType(dtype) != dtype; }

inline const char* Advance(const void* data, int64_t bytes) {
  return static_cast<const char*>(data) + bytes;
}
inline char* Advance(void* data, int64_t bytes) { return static_cast<char*>(data) + bytes; }

}  // namespace tensord::server::cpu
