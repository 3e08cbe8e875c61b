// Makes the prepared kernels of the CPU backend (PreparedKernel in ../device.h).
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/server/device/cpu/kernel.h"

namespace tensord::server::cpu {

class PackedWeights;

// The objects of a device that prepared kernels use. They must outlive the kernels.
struct PrepareContext {
  const Context& team;   // all threads of the team; for kernels that run on the executor's thread
  const Context& alone;  // only the calling thread; for kernels that run inline
  PackedWeights& packed_weights;
};

// These functions are thread-safe.

// Prepares an elementwise op. If the op isn't elementwise or has no loop over these dtypes, returns
// null.
std::unique_ptr<PreparedKernel> PrepareElementwise(const PrepareContext& ctx,
                                                   const KernelSpec& spec);

// Prepares matmul or linear. For other ops, for an output without elements, and for dtypes without
// a kernel, returns null.
std::unique_ptr<PreparedKernel> PrepareProduct(const PrepareContext& ctx, const KernelSpec& spec);

// Prepares conv or a gradient of it. For other ops, and for dtypes without a kernel, returns null.
std::unique_ptr<PreparedKernel> PrepareConv(const PrepareContext& ctx, const KernelSpec& spec);

// Prepares any op that has a kernel. For other ops, returns null.
std::unique_ptr<PreparedKernel> PrepareAny(const PrepareContext& ctx, const KernelSpec& spec);

// Prepares several elementwise ops as one kernel. It computes in blocks that stay in the cache, in
// one pass over memory. If an op isn't elementwise, or there are too many ops, inputs or
// intermediate values, returns UNIMPLEMENTED.
absl::StatusOr<std::unique_ptr<PreparedKernel>> PrepareFusedElementwise(const PrepareContext& ctx,
                                                                        const FusedSpec& spec);

// Returns true if a result is larger than the last-level cache. It is then written to memory
// without the caches.
bool ExceedsCaches(int64_t size_bytes);

}  // namespace tensord::server::cpu
