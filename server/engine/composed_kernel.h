// The kernels of ops that are compositions (common/ops/composition.h).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/server/budget.h"
#include "tensord/server/device/device.h"
#include "tensord/server/engine/fusion.h"
#include "tensord/server/engine/prepared_op_cache.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

struct PreparedComposition {
  std::unique_ptr<PreparedKernel> kernel;
  // If all ops are elementwise and form one fusion group, these are its steps: the composition can
  // be part of a larger fused kernel. Otherwise null.
  std::shared_ptr<const FusedSteps> fused_steps;
};

// Prepares what the formula of `plan.schema` builds for these inputs. Each fusion group becomes one
// kernel, if the device has one for it. `chains` prepares this kernel. Until it is ready, or if
// `chains` is null, the ops run one by one. `prepared_ops` prepares the other ops for `caller`.
// Each launch allocates the intermediate values, charges them to its account, and frees each after
// its last use.
absl::StatusOr<PreparedComposition> PrepareComposition(
    const OpPlan& plan, absl::Span<const TensorSpec> inputs, DeviceSlot* slot,
    PreparedOpCache* prepared_ops, ChainKernels* chains, const BudgetRef& caller);

}  // namespace tensord::server
