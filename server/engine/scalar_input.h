// Makes tensors of the scalars among an op's inputs, such as the 2.0 of `x * 2.0`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensord/common/dtype.h"
#include "tensord/server/session/session.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

// An input that is a scalar. The op reads a tensor of shape [] with this dtype.
struct ScalarInput {
  uint32_t position;  // among the op's inputs
  DType dtype;        // not complex
  // op_words.h: FloatToWord() for a floating dtype, IntToWord() for any other. A uint64 of 2^63 or
  // more has the word of the int64 with the same bits.
  uint64_t word;
};

// Returns the entry of `scalars` at this position among the inputs; null if there is none.
template <typename Scalars>
const typename Scalars::value_type* ScalarAt(const Scalars& scalars, size_t position) {
  for (const auto& scalar : scalars) {
    if (scalar.position == position) return &scalar;
  }
  return nullptr;
}

// Returns the scalar's spec: its dtype, and shape [].
TensorSpec SpecOf(const ScalarInput& scalar);

// Stores the scalar's value at `out`, which has room for one element. A value that the dtype can't
// hold wraps (integers) or becomes infinite (floating dtypes).
void StoreScalar(const ScalarInput& scalar, void* out);

// Gives the scalar's value to `tensor`, which must be pending and has no handle. If the host can
// access the device's memory, the tensor is done when this function returns: if no memory is left,
// with an error. Otherwise a task that fills the tensor is posted to the session's lane.
void MakeScalarTensor(const SessionRef& session, const ScalarInput& scalar,
                      const TensorRef& tensor);

}  // namespace tensord::server
