// Order that a library makes between our threads, shown to ThreadSanitizer.
#pragma once

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace tensord {

// What a thread hands to gRPC (a reactor with StartWrite, StartRead, Finish) another gets back from
// it (OnWriteDone, OnReadDone, OnDone); what comes before an OpenMP region the region's threads
// see. The libraries order the two; as they come from the system they aren't instrumented, so that
// ThreadSanitizer has to be told. Nothing in other builds.
#ifdef __SANITIZE_THREAD__
inline void HandOver(void* what) { __tsan_release(what); }
inline void TakeOver(void* what) { __tsan_acquire(what); }
#else
inline void HandOver(void* /*what*/) {}
inline void TakeOver(void* /*what*/) {}
#endif

}  // namespace tensord
