// How unary handlers end.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/server/session/session.h"
#include "tensord/v1/types.pb.h"

namespace tensord::server {

// The call's reactor, finished with `status`.
grpc::ServerUnaryReactor* Finished(grpc::CallbackServerContext* call, const absl::Status& status);

// The call's reactor, which answers with a description of `tensor` when it is done. One that fails
// is taken out of the session: a call that fails changes nothing.
grpc::ServerUnaryReactor* FinishWhenDone(grpc::CallbackServerContext* call, SessionUse session,
                                         absl::StatusOr<TensorRef> tensor, v1::Tensor* response);

}  // namespace tensord::server
