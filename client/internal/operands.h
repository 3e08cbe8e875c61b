// Ops whose operands are tensors and scalars.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/client/ops.h"
#include "tensord/client/tensor.h"
#include "tensord/common/ops/op_schema.h"

namespace tensord::internal {

// Runs an op of operands, of which at least one must be a tensor. Scalars are sent with the op. The
// tensors from `first` on, and the scalars, are promoted as Operand in ops.h describes. `numbers`
// is that of the op: a factor doesn't promote the tensors.
Tensor RunOperands(absl::string_view op, absl::Span<const Operand> operands, int first = 0,
                   NumberInputs numbers = {.first = 0});

}  // namespace tensord::internal
