// Waiting for a tensor that may be made by a command still on its way.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "tensord/server/rpc/status_convert.h"
#include "tensord/server/session/session.h"

namespace tensord::server {

// Calls `ready` with the tensor once the session's stream has brought `after_command` commands and
// the tensor is done and OK; otherwise `failed` with the error. Either may run before this returns.
void WaitForTensor(const SessionRef& session, uint64_t after_command, Handle handle,
                   std::function<void(const TensorRef&)> ready,
                   std::function<void(const absl::Status&)> failed);

// A unary call that waits for a tensor. Its owner calls Start once; whoever comes first, the answer
// or the client's cancellation, finishes the call. `response` objects of gRPC's stay valid until
// the reactor is deleted, and it isn't before its own last call back has come.
class WaitingReactor final : public grpc::ServerUnaryReactor {
 public:
  explicit WaitingReactor(SessionUse session) : session_(std::move(session)) {}

  // `ready` must lead to FinishOnce.
  void Start(uint64_t after_command, Handle handle, std::function<void(const TensorRef&)> ready) {
    WaitForTensor(session_.ref(), after_command, handle, std::move(ready),
                  [this](const absl::Status& error) { FinishOnce(error); });
  }

  void FinishOnce(const absl::Status& status) { Finish(ToGrpc(status)); }

  void OnDone() override { delete this; }

 private:
  SessionUse session_;
};

}  // namespace tensord::server
