// Waits for tensors, and for the commands that create them.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/session/session.h"

namespace tensord::server {

// Calls `ready` when the first `after_command` commands of the session's stream have taken effect
// and the tensor is done. `ready` gets the tensor or an error. It runs on any thread, possibly
// before this function returns. If the session has no host memory left for the wait, the error is
// RESOURCE_EXHAUSTED. Doesn't block.
void WaitForTensor(const SessionRef& session, uint64_t after_command, Handle handle,
                   std::function<void(const absl::StatusOr<TensorRef>&)> ready);

// Works as WaitForTensor(), but also waits until Device::Read() can read the tensor's bytes.
void WaitUntilReadable(Engine* engine, const SessionRef& session, uint64_t after_command,
                       Handle handle, std::function<void(const absl::StatusOr<TensorRef>&)> ready);

// Returns the end of a read of `limit` bytes from `offset` on. If `limit` is 0, returns the end of
// the tensor. If the range isn't inside the tensor, returns OUT_OF_RANGE.
absl::StatusOr<int64_t> ReadEnd(const Tensor& tensor, int64_t offset, int64_t limit);

}  // namespace tensord::server
