// Entry points of ops: infer an op and queue it.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/client/device.h"
#include "tensord/client/scalar.h"
#include "tensord/client/tensor.h"
#include "tensord/common/attributes.h"

namespace tensord::internal {

// Checks the inputs' statuses and devices, and runs the op's inference. Then sends the op, or
// records it if an input is a placeholder of a program. If a step fails, returns a failed tensor.
// There must be at least one input.
Tensor Enqueue(absl::string_view op, absl::Span<const Tensor* const> inputs,
               const Attributes& attrs);

// The same for an op without inputs.
Tensor EnqueueCreation(absl::string_view op, const Device& device, const Attributes& attrs);

AttrValue ToAttr(Scalar value);

}  // namespace tensord::internal
