#include "tensord/server/rpc/finish.h"

#include <utility>

#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/status_convert.h"
#include "tensord/server/rpc/wait_for_tensor.h"

namespace tensord::server {

grpc::ServerUnaryReactor* Finished(grpc::CallbackServerContext* call, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

grpc::ServerUnaryReactor* FinishWhenDone(grpc::CallbackServerContext* call, SessionUse session,
                                         absl::StatusOr<TensorRef> tensor, v1::Tensor* response) {
  if (!tensor.ok()) return Finished(call, tensor.status());
  auto* reactor = new WaitingReactor(std::move(session));
  reactor->WaitThenFinish([&](const std::function<void(const WaitingReactor::Finish&)>& finish) {
    (*tensor)->WhenDone([reactor, finish, response, tensor = *tensor] {
      finish([&] {
        if (tensor->status().ok()) {
          ToProto(*tensor, response);
        } else {
          reactor->session().Remove(tensor);
        }
        return tensor->status();
      });
    });
  });
  return reactor;
}

}  // namespace tensord::server
