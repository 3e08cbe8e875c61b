// Finishes calls that make a tensor.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "tensord/server/rpc/unary/unary_call.h"
#include "tensord/server/session/session.h"

namespace tensord::server {

// What happens to the tensor if the call ends before the tensor is done: the client has cancelled
// the call, or its deadline has passed.
enum class EarlyEnd {
  kStopsOp,    // Session::Abandon(): the op stops, unless the tensor is used
  kKeepsWork,  // the work continues
};

// Finishes the call when `tensor` is done and its value checks are resolved, after `describe` has
// filled the response. If the tensor fails, removes it from the session, because a call that fails
// changes nothing. If `tensor` is an error, finishes the call with that error at once. With
// kStopsOp, the tensor must be made by an op of this call.
void FinishWhenDone(const std::shared_ptr<UnaryCallBase>& call, SessionUse session,
                    const absl::StatusOr<TensorRef>& tensor, EarlyEnd early_end,
                    std::function<void(const Tensor&)> describe);

// Does the same as FinishWhenDone() for several tensors: calls `describe` for each. If some have
// failed, removes these from the session, and finishes the call with the error of the first.
void FinishWhenAllDone(const std::shared_ptr<UnaryCallBase>& call, SessionUse session,
                       std::vector<TensorRef> tensors, std::function<void(const Tensor&)> describe);

}  // namespace tensord::server
