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

// Prepares what the formula of `plan.schema` builds for these inputs. Elementwise ops that lead to
// one value become one kernel, if the device has one for them. `chains` prepares it; until then,
// the ops run one by one. If `chains` is null, they always do. `prepared_ops` prepares the other ops,
// for `caller`. Intermediate values are allocated for each launch, charged
// to the launch's account, and freed after their last use.
absl::StatusOr<std::unique_ptr<PreparedKernel>> PrepareComposition(
    const OpPlan& plan, absl::Span<const TensorSpec> inputs, DeviceSlot* slot,
    PreparedOpCache* prepared_ops, ChainKernels* chains, const BudgetRef& caller);

}  // namespace tensord::server
