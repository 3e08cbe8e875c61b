// Waiting for a tensor that may be made by a command still on its way.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/handover.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/rpc/cancellable_wait.h"
#include "tensord/server/session/session.h"

namespace tensord::server {

// Calls `ready` once the session's stream has brought `after_command` commands and the tensor is
// done: with the tensor, or with the error. May run before this returns.
void WaitForTensor(const SessionRef& session, uint64_t after_command, Handle handle,
                   std::function<void(const absl::StatusOr<TensorRef>&)> ready);

// The same, once the tensor's bytes can be read by Device::Read.
void WaitUntilReadable(Engine* engine, const SessionRef& session, uint64_t after_command,
                       Handle handle, std::function<void(const absl::StatusOr<TensorRef>&)> ready);

// Where a read of `limit` bytes from `offset` on ends; 0 bytes: with the tensor. OUT_OF_RANGE where
// that isn't inside it.
absl::StatusOr<int64_t> ReadEnd(const Tensor& tensor, int64_t offset, int64_t limit);

// A unary call that waits for something, and uses a session until it is finished. Deletes itself.
class WaitingReactor final : public grpc::ServerUnaryReactor {
 public:
  explicit WaitingReactor(SessionUse session) : session_(std::move(session)) {}

  Session& session() const { return *session_; }
  const SessionRef& session_ref() const { return session_.ref(); }

  // Has `start` called with a call back that is to run `finish` on any thread, any time, once.
  // `finish` fills the response and says how the call ends; it doesn't run where the client has
  // cancelled.
  using Finish = std::function<absl::Status()>;
  void WaitThenFinish(const std::function<void(std::function<void(const Finish&)>)>& start);

  void OnCancel() override;
  void OnDone() override {
    TakeOver(this);
    delete this;
  }

 private:
  SessionUse session_;
  CancellableWait wait_;
};

}  // namespace tensord::server
