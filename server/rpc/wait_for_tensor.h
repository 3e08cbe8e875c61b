// Waiting for a tensor that may be made by a command still on its way.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/server/engine/engine.h"
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

}  // namespace tensord::server
