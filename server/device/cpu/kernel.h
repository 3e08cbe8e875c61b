// What a kernel of the CPU backend is, and what it may use.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/server/device/cpu/isa/loops.h"
#include "tensord/server/device/cpu/memory_pool.h"
#include "tensord/server/device/cpu/team.h"
#include "tensord/server/device/device.h"

namespace tensord::server::cpu {

class OneDnn;

// One per device, used by its executor thread alone.
struct Context {
  Team team;
  const Loops& loops;
  MemoryPool& pool;
  OneDnn& onednn;
};

// Computes all of call.output before it returns. Arguments are as the op's schema has left them and
// are not checked again; (op, dtype) pairs that inference never lets through give NoKernel().
using Kernel = absl::Status (*)(const Context& ctx, const KernelCall& call);

// INTERNAL: "cpu: no kernel for add over bool".
absl::Status NoKernel(const KernelCall& call);

// Memory for the length of a kernel; RESOURCE_EXHAUSTED naming the op where there is none.
absl::StatusOr<Scratch> MakeScratch(const Context& ctx, const KernelCall& call, int64_t size_bytes);

// y[0, n) = x[0, n) in another dtype, or the same; on the calling thread.
void Convert(const Loops& loops, DType from, const void* x, DType to, void* y, int64_t n);

// The same, by the whole team.
void ConvertInParallel(const Context& ctx, DType from, const void* x, DType to, void* y, int64_t n);

// The dtype in which elements of `dtype` are computed: float32 for the 16-bit ones.
constexpr DType ComputeDType(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
}
constexpr bool Is16Bit(DType dtype) { return ComputeDType(dtype) != dtype; }

inline const char* Advance(const void* data, int64_t bytes) {
  return static_cast<const char*>(data) + bytes;
}
inline char* Advance(void* data, int64_t bytes) { return static_cast<char*>(data) + bytes; }

}  // namespace tensord::server::cpu
