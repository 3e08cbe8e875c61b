// Counts the memory that the buffers of CPU devices really occupy.
#pragma once

#include "tensord/server/budget.h"

namespace tensord::server {

// Returns the budget of the pages that hold blocks for buffers of CPU devices, in bytes. It counts
// whole pages, even if only a part of a page is in use, and blocks that are kept for reuse. Devices
// count only the sizes of their buffers (DeviceMemoryLimit). If most buffers have been freed, these
// sizes may be much smaller than the pages. There is no limit until SetLimit() is called.
// Thread-safe.
Budget& BufferPages();

}  // namespace tensord::server
