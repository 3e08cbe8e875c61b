// Finishes calls that make a tensor.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "tensord/server/rpc/unary/unary_call.h"
#include "tensord/server/session/session.h"

namespace tensord::server {

// Finishes the call when `tensor` is done, after `describe` has filled the response. If the tensor
// fails, removes it from the session, because a call that fails changes nothing. If `tensor` is an
// error, finishes the call with it at once.
void FinishWhenDone(const std::shared_ptr<UnaryCallBase>& call, SessionUse session,
                    const absl::StatusOr<TensorRef>& tensor,
                    std::function<void(const Tensor&)> describe);

}  // namespace tensord::server
