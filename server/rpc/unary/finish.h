// How calls that make a tensor end.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "tensord/server/rpc/unary/unary_call.h"
#include "tensord/server/session/session.h"

namespace tensord::server {

// Finishes the call when `tensor` is done, once `describe` has filled the response. A tensor that
// fails is taken out of the session: a call that fails changes nothing.
void FinishWhenDone(const std::shared_ptr<UnaryCallBase>& call, SessionUse session,
                    const absl::StatusOr<TensorRef>& tensor,
                    std::function<void(const Tensor&)> describe);

}  // namespace tensord::server
