// Waits for tensors, and for the commands that create them.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/session/session.h"

namespace tensord::server {

// Waits until the session's stream has brought `after_command` commands and the tensor is done.
// Then calls `ready` with the tensor or an error: on any thread, possibly before this function
// returns. If the session has no host memory left for the wait, the error is RESOURCE_EXHAUSTED.
void WaitForTensor(const SessionRef& session, uint64_t after_command, Handle handle,
                   std::function<void(const absl::StatusOr<TensorRef>&)> ready);

// The same, but waits until Device::Read() can read the tensor's bytes.
void WaitUntilReadable(Engine* engine, const SessionRef& session, uint64_t after_command,
                       Handle handle, std::function<void(const absl::StatusOr<TensorRef>&)> ready);

// Returns the end of a read of `limit` bytes from `offset` on. Limit 0: the end of the tensor. If
// the range isn't inside the tensor, returns OUT_OF_RANGE.
absl::StatusOr<int64_t> ReadEnd(const Tensor& tensor, int64_t offset, int64_t limit);

}  // namespace tensord::server
