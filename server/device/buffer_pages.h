// Counts the memory that the buffers of CPU devices really occupy.
#pragma once

#include "tensord/server/budget.h"

namespace tensord::server {

// Returns the budget of the pages that hold blocks for buffers of CPU devices, in bytes. It counts
// whole pages, also if only a small part of a page is still in use, and blocks that are kept for
// reuse. Devices count only the sizes of their buffers (DeviceMemoryLimit), which are a small part
// of that if most of many buffers were freed. There is no limit until SetLimit() is called.
// Thread-safe.
Budget& BufferPages();

}  // namespace tensord::server
