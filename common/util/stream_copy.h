// Copies to memory that no thread reads soon.
#pragma once

#include <cstdint>

namespace tensord {

// Copies like memcpy, but bypasses the caches if the processor supports it: the processor doesn't
// read the destination first and evicts no cache lines. Use it for pieces of a large block that are
// too small for memcpy to bypass the caches itself.
void StreamCopy(void* to, const void* from, int64_t bytes);

}  // namespace tensord
