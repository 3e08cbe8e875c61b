// Infers ops and queues them. Every function that makes a tensor by an op calls one of these.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/client/device.h"
#include "tensord/client/scalar.h"
#include "tensord/client/tensor.h"
#include "tensord/common/attributes.h"
#include "tensord/common/dtype.h"

namespace tensord::internal {

struct PreparedOp;  // op_table.h

// Checks the inputs' statuses and devices, and runs the op's inference. Then sends the op, or
// records it if an input is a placeholder of a program. If a step fails, returns a failed tensor.
// There must be at least one input, and one output: an op with several outputs is INVALID_ARGUMENT.
Tensor Enqueue(absl::string_view op, absl::Span<const Tensor* const> inputs,
               const Attributes& attrs);

// An input that is a scalar.
struct ScalarInput {
  uint32_t position;  // among all inputs
  DType dtype;
  uint64_t word;  // the value, as op_words.h encodes it
};
// Returns the scalar as an input of this dtype. If the dtype can't hold its value, returns nullopt.
std::optional<ScalarInput> ToScalarInput(Scalar value, DType dtype, uint32_t position);
// Does the same as Enqueue for an op that also has scalars as inputs. `inputs` has only the
// tensors, none of which may be a placeholder of a program. `scalars` must be sorted by position.
Tensor EnqueueWithScalars(absl::string_view op, absl::Span<const Tensor* const> inputs,
                          absl::Span<const ScalarInput> scalars);

using Tensors = absl::InlinedVector<Tensor, 2>;
// Does the same as Enqueue for an op with any number of outputs. Donates the inputs at the
// positions `donate`: if the op was queued, they can't be used any more. If an input is in transfer
// (a read, or a copy between servers), the transfer goes on, and the op doesn't overwrite the
// input. A program that is being recorded ignores `donate`. `scalars` are further inputs, as of
// EnqueueWithScalars; then no input may be a placeholder of a program.
absl::StatusOr<Tensors> EnqueueAll(absl::string_view op, absl::Span<const Tensor* const> inputs,
                                   const Attributes& attrs, absl::Span<const int> donate,
                                   absl::Span<const ScalarInput> scalars = {});

// Enqueues an op with `count` outputs, as EnqueueAll does. If that fails, returns `count` failed
// tensors with its error.
Tensors EnqueueAllOrFailed(absl::string_view op, absl::Span<const Tensor* const> inputs,
                           const Attributes& attrs, size_t count,
                           absl::Span<const int> donate = {});

// Does the same as EnqueueAll for a prepared op. Sets `*outputs`, which must be empty, to the
// outputs.
absl::Status EnqueuePrepared(const PreparedOp& op, absl::Span<const Tensor* const> inputs,
                             absl::Span<const int> donate, absl::Span<const ScalarInput> scalars,
                             Tensors* outputs);

// Returns whether the tensor is a placeholder of a program that is being recorded.
bool IsRecorded(const Tensor& tensor);

// Does the same as Enqueue for an op without inputs.
Tensor EnqueueCreation(absl::string_view op, const Device& device, const Attributes& attrs);

// Returns the values as an attribute.
inline std::vector<int64_t> ToInts(absl::Span<const int64_t> values) {
  return {values.begin(), values.end()};
}
// Returns the value as an attribute. An integer that is too large for int64 becomes a float.
AttrValue ToAttr(Scalar value);

}  // namespace tensord::internal
