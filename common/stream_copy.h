// Copies to memory that nobody reads soon.
#pragma once

#include <cstdint>

namespace tensord {

// memcpy past the caches, where the processor can: the destination isn't read first, and what the
// caches hold stays. For pieces of a large block, each too small for memcpy to know.
void StreamCopy(void* to, const void* from, int64_t bytes);

}  // namespace tensord
