// Kernels made ready for a device's plans to run again and again (PreparedKernel in ../device.h).
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/server/device/cpu/kernel.h"

namespace tensord::server::cpu {

class PackedWeights;

// What prepared kernels run in; outlives them.
struct PrepareContext {
  const Context& team;   // on the executor's thread, with the others to help
  const Context& alone;  // on the calling thread alone: for kernels that run inline
  PackedWeights& packed_weights;
};

// All of these are thread-safe.

// An elementwise op. Null where the op isn't one, or there is none over these dtypes.
std::unique_ptr<PreparedKernel> PrepareElementwise(const PrepareContext& ctx,
                                                   const KernelSpec& spec);

// matmul and linear. Null for other ops, and where the operands are empty or ill-typed.
std::unique_ptr<PreparedKernel> PrepareProduct(const PrepareContext& ctx, const KernelSpec& spec);

// Any op that has a kernel; null otherwise.
std::unique_ptr<PreparedKernel> PrepareAny(const PrepareContext& ctx, const KernelSpec& spec);

// Elementwise ops in blocks that stay in the cache, in one pass over memory. UNIMPLEMENTED where
// one of them isn't elementwise, or there are too many.
absl::StatusOr<std::unique_ptr<PreparedKernel>> PrepareFusedElementwise(const PrepareContext& ctx,
                                                                        const FusedSpec& spec);

// Whether a result is so large that it is written past the caches, which wouldn't hold it anyway.
bool IsPastCaches(int64_t size_bytes);

// Whether the output of an elementwise kernel might overwrite an input: both have as many elements
// of one size.
bool HasElementsOf(const TensorSpec& input, const TensorSpec& output);

}  // namespace tensord::server::cpu
