#include "tensord/server/rpc/finish.h"

#include <utility>

#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/status_convert.h"

namespace tensord::server {

grpc::ServerUnaryReactor* Finished(grpc::CallbackServerContext* call, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

grpc::ServerUnaryReactor* FinishWhenDone(grpc::CallbackServerContext* call, SessionUse session,
                                         absl::StatusOr<TensorRef> tensor, v1::Tensor* response) {
  if (!tensor.ok()) return Finished(call, tensor.status());
  grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
  auto use = std::make_shared<SessionUse>(std::move(session));
  (*tensor)->WhenDone([reactor, use, response, tensor = *tensor] {
    if (tensor->status().ok()) {
      ToProto(*tensor, response);
    } else {
      (*use)->Remove(tensor);
    }
    reactor->Finish(ToGrpc(tensor->status()));
  });
  return reactor;
}

}  // namespace tensord::server
