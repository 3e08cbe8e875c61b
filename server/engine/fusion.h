// Chains of elementwise ops, run as one kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
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

// The same by what it reads: i >= 0 is input i of the chain, i < 0 the result of op -i - 1.
struct ChainOp {
  const RecipeRef* recipe;
  absl::InlinedVector<int, 3> operands;
};

// Kernels for chains, by their ops and by what these read. Thread-safe.
class ChainKernels {
 public:
  // `recipes` outlives this.
  explicit ChainKernels(RecipeCache* recipes) : recipes_(recipes) {}

  // Whether the op may begin a chain, and of how many ops at most: 1 where it may not.
  static size_t MostOps(const Recipe& first);
  // Whether `next`, which reads what `op` gives, may be the op after it in a chain: both are
  // elementwise and give the same shape, or `op` is a linear without an activation and `next` one
  // that could be its.
  static bool MayFollow(const Recipe& op, const Recipe& next);
  // A chain that begins with it is a linear with its activation.
  static bool IsBareLinear(const Recipe& recipe);

  // The one kernel of a chain of elementwise ops; null where the device has none for it.
  std::shared_ptr<PreparedKernel> Find(absl::Span<const ChainOp> chain);

  // The linear with this activation.
  absl::StatusOr<RecipeRef> FindLinear(const Recipe& linear, const Recipe& activation);

  // The last op's result, computed in one go; null where the device has no kernel for this chain.
  // All inputs from outside the chain are there; what is taken is charged to `account`. By whoever
  // has the device's executor.
  absl::StatusOr<BufferRef> Run(MemoryAccount& account, absl::Span<const ChainLink> chain);

 private:
  static constexpr size_t kMaxKernels = 1024;

  struct Kernel {
    std::vector<RecipeRef> recipes;          // the key names them by address
    std::unique_ptr<PreparedKernel> kernel;  // null: the device has none
  };

  std::shared_ptr<Kernel> FindKernel(absl::Span<const ChainOp> chain);

  RecipeCache* const recipes_;
  Mutex mu_;
  absl::flat_hash_map<std::string, std::shared_ptr<Kernel>> kernels_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
