// Entry points: each infers an op and queues it.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/client/device.h"
#include "tensord/client/scalar.h"
#include "tensord/client/tensor.h"
#include "tensord/common/attributes.h"

namespace tensord::internal {

// Checks the inputs' statuses and devices, runs the op's inference, and sends the op, or records it
// if an input stands for a value of a program. The result is a failed tensor if anything of that
// fails. There must be at least one input.
Tensor Enqueue(absl::string_view op, absl::Span<const Tensor* const> inputs,
               const Attributes& attrs);

// The same for an op without inputs.
Tensor EnqueueCreation(absl::string_view op, const Device& device, const Attributes& attrs);

AttrValue ToAttr(Scalar value);

}  // namespace tensord::internal
