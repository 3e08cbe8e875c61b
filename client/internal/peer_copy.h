// Copies between servers: the destination is asked to fetch, and the bytes don't come by here.
#pragma once

#include <memory>

#include "tensord/client/device.h"
#include "tensord/client/tensor.h"

namespace tensord::internal {

// A copy of `source`, which is well and not of a program that is being recorded, on a device of
// another session. Doesn't wait: the tensor is promised there, and the servers are told in the
// background. Where they can't do it between them, the bytes go through this program.
Tensor CopyToPeer(const Tensor& source, const Device& device);

}  // namespace tensord::internal
