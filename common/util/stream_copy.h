// Copies to memory that is not read soon.
#pragma once

#include <cstdint>

namespace tensord {

// As memcpy, but bypasses the caches if the processor can: it doesn't read the destination first,
// and evicts nothing. For pieces of a large block that are too small for memcpy to do so itself.
void StreamCopy(void* to, const void* from, int64_t bytes);

}  // namespace tensord
