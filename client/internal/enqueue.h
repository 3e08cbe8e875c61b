// Entry points of ops: infer an op and queue it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/client/device.h"
#include "tensord/client/scalar.h"
#include "tensord/client/tensor.h"
#include "tensord/common/attributes.h"
#include "tensord/common/tensor_spec.h"

namespace tensord::internal {

// Checks the inputs' statuses and devices, and runs the op's inference. Then sends the op, or
// records it if an input is a placeholder of a program. If a step fails, returns a failed tensor.
// There must be at least one input.
Tensor Enqueue(absl::string_view op, absl::Span<const Tensor* const> inputs,
               const Attributes& attrs);

// A number at the place of an input.
struct NumberInput {
  uint32_t position;  // among all inputs
  TensorSpec spec;    // its dtype, and shape []
  uint64_t word;      // op_words.h
};
// Returns the number as an input of this dtype; nullopt if the dtype can't hold its value.
std::optional<NumberInput> ToNumberInput(Scalar value, DType dtype, uint32_t position);
// As Enqueue, for an op that also has inputs that are numbers, in order of position. `inputs` has
// the tensors only. No tensor may be a placeholder of a program.
Tensor EnqueueWithNumbers(absl::string_view op, absl::Span<const Tensor* const> inputs,
                          absl::Span<const NumberInput> numbers);

// As Enqueue, for an op with any number of outputs. Donates the inputs at the positions `donate`:
// if the op was queued, they can't be used any more. If an input is in transfer (a read, or a copy
// between servers), the transfer goes on, and the op doesn't overwrite the input. A program that is
// being recorded ignores `donate`.
absl::StatusOr<std::vector<Tensor>> EnqueueAll(absl::string_view op,
                                               absl::Span<const Tensor* const> inputs,
                                               const Attributes& attrs,
                                               absl::Span<const int> donate);

// Returns whether the tensor is a placeholder of a program that is being recorded.
bool IsRecorded(const Tensor& tensor);

// As Enqueue, for an op without inputs.
Tensor EnqueueCreation(absl::string_view op, const Device& device, const Attributes& attrs);

AttrValue ToAttr(Scalar value);

}  // namespace tensord::internal
