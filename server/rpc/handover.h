// Order that gRPC makes between our threads, shown to ThreadSanitizer.
#pragma once

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace tensord::server {

// What a thread hands to gRPC (a reactor with StartWrite, StartRead, Finish) another gets back from it
// (OnWriteDone, OnReadDone, OnDone). gRPC orders the two; the system's gRPC isn't instrumented, so that
// ThreadSanitizer has to be told. Nothing in other builds.
#ifdef __SANITIZE_THREAD__
inline void HandOver(void* what) { __tsan_release(what); }
inline void TakeOver(void* what) { __tsan_acquire(what); }
#else
inline void HandOver(void* /*what*/) {}
inline void TakeOver(void* /*what*/) {}
#endif

}  // namespace tensord::server
