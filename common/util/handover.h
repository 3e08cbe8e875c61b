// Tells ThreadSanitizer about the order that a library makes between our threads.
#pragma once

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace tensord {

// A thread calls HandOver() before it gives an object to a library, and the thread that gets the
// object back calls TakeOver(): around an operation of gRPC, and around an OpenMP region. The
// library orders the two, but ThreadSanitizer can't see that, because the system's libraries are
// not instrumented. Both do nothing in other builds.
#ifdef __SANITIZE_THREAD__
inline void HandOver(void* what) { __tsan_release(what); }
inline void TakeOver(void* what) { __tsan_acquire(what); }
#else
inline void HandOver(void* /*what*/) {}
inline void TakeOver(void* /*what*/) {}
#endif

}  // namespace tensord
