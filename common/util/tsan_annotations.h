// Tells ThreadSanitizer how an uninstrumented library orders our threads, and which lock a thread
// holds.
#pragma once

#ifdef __SANITIZE_THREAD__  // GCC
#define TENSORD_TSAN
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)  // Clang
#define TENSORD_TSAN
#endif
#endif

#ifdef TENSORD_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace tensord {

// A thread calls TsanRelease() before it passes an object to a library, and the thread that gets
// the object back calls TsanAcquire(). The calls surround operations of gRPC and OpenMP regions.
// The library orders the two threads, but ThreadSanitizer can't see this, because the system's
// libraries aren't instrumented. In builds without ThreadSanitizer both functions do nothing.
#ifdef TENSORD_TSAN
inline void TsanRelease(void* what) { __tsan_release(what); }
inline void TsanAcquire(void* what) { __tsan_acquire(what); }
#else
inline void TsanRelease(void* /*what*/) {}
inline void TsanAcquire(void* /*what*/) {}
#endif

// A thread calls TsanLocked() when it has acquired a lock that isn't a mutex, and TsanUnlocked()
// before it releases the lock. ThreadSanitizer then reports threads that acquire this lock and
// others in different orders. In builds without ThreadSanitizer both functions do nothing.
#ifdef TENSORD_TSAN
inline void TsanLocked(void* lock) {
  __tsan_mutex_pre_lock(lock, 0);
  __tsan_mutex_post_lock(lock, 0, 0);
}
inline void TsanUnlocked(void* lock) {
  __tsan_mutex_pre_unlock(lock, 0);
  __tsan_mutex_post_unlock(lock, 0);
}
#else
inline void TsanLocked(void* /*lock*/) {}
inline void TsanUnlocked(void* /*lock*/) {}
#endif

}  // namespace tensord
