// Chains of elementwise ops, run as one kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "tensord/common/mutex.h"
#include "tensord/server/engine/recipe.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

// An op of a chain: each but the first reads the one before it, which nobody else does.
struct ChainLink {
  const RecipeRef* recipe;
  absl::Span<const TensorRef> inputs;
  const Tensor* output;
};

// Kernels for chains, by their ops and by what these read. Thread-safe.
class ChainKernels {
 public:
  // `recipes` outlives this.
  explicit ChainKernels(RecipeCache* recipes) : recipes_(recipes) {}

  // Whether the op may be part of a chain.
  static bool MayFuse(const Recipe& recipe);

  // A linear without an activation, and one that could be its: a chain of these two is a linear
  // with it.
  static bool IsBareLinear(const Recipe& recipe);
  static bool IsActivation(const Recipe& recipe);

  // The last op's result, computed in one go: of elementwise ops, or of a linear and its
  // activation; null where the device has no kernel for this chain. All inputs from outside the
  // chain are there. By whoever has the device's executor.
  absl::StatusOr<BufferRef> Run(absl::Span<const ChainLink> chain);

 private:
  static constexpr size_t kMaxKernels = 1024;

  struct Kernel {
    std::vector<RecipeRef> recipes;          // the key names them by address
    std::unique_ptr<PreparedKernel> kernel;  // null: the device has none
  };

  absl::StatusOr<BufferRef> RunLinear(const ChainLink& linear, const Recipe& activation);
  std::shared_ptr<Kernel> Find(absl::Span<const ChainLink> chain,
                               absl::Span<const TensorRef* const> inputs);

  RecipeCache* const recipes_;
  Mutex mu_;
  absl::flat_hash_map<std::string, std::shared_ptr<Kernel>> kernels_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
