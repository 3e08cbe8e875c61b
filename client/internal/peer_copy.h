// Copies between servers: the destination fetches from the source, without this program.
#pragma once

#include <memory>

#include "tensord/client/device.h"
#include "tensord/client/tensor.h"

namespace tensord::internal {

// Returns a copy of `source` on a device of another session. `source` must be ok and not a
// placeholder of a program. Doesn't wait: promises the tensor at the destination and begins
// the first call. The background threads make the other calls. If the servers can't transfer the
// bytes directly, this program reads them from the source and uploads them to the destination.
//
//     CreateTicket (source) ──▶ PullTensor (destination) ──▶ done
//            │                         │ the route fails
//            └────────────▶ GetTensor (source) ──▶ read, then upload (relay) ──▶ done
//
// If one of these calls fails, its error sticks to the copy.
Tensor CopyToPeer(const Tensor& source, const Device& device);

}  // namespace tensord::internal
