// Resolves value checks (session/value_checks.h) when the device has reached a point after them.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

// Executor thread. Calls slot.device->Fence(). When the fence has been reached, resolves all checks
// of the ops that were launched before, then calls `done` as Device::Fence() does. All fences of
// the engine go through this function.
void FenceAndResolve(DeviceSlot& slot, std::function<void(absl::Status)> done);

// Executor thread. Does the same as FenceAndResolve(), but blocks until the fence has been reached,
// and returns its status.
absl::Status AwaitFence(DeviceSlot& slot);

// Calls `callback` when the tensor is done and its checks are resolved: the status then changes
// only if the device is lost. `callback` may be called on any thread, and must not block or call
// the device.
void WhenChecked(const TensorRef& tensor, std::function<void()> callback);

}  // namespace tensord::server
