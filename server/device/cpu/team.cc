#include "tensord/server/device/cpu/team.h"

#include <algorithm>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "tensord/common/util/tsan_annotations.h"

namespace tensord::server::cpu {
namespace {

// The address that all regions pass to TsanRelease() and TsanAcquire(). It isn't on the stack: a thread
// would have to read variables of the region, which are not handed over yet, to find it.
char region;

}  // namespace

void Team::Bind() const {
#ifdef _OPENMP
  omp_set_dynamic(0);
  omp_set_num_threads(threads_);
#endif
}

#ifdef _OPENMP
ScopedThreads::ScopedThreads(int threads) {
  const int before = omp_get_max_threads();
  if (before == threads) return;
  before_ = before;
  omp_set_num_threads(threads);
}

ScopedThreads::~ScopedThreads() {
  if (before_ != 0) omp_set_num_threads(before_);
}
#else
ScopedThreads::ScopedThreads(int /*threads*/) {}
ScopedThreads::~ScopedThreads() = default;
#endif

int Team::Current() {
#ifdef _OPENMP
  return omp_get_thread_num();
#else
  return 0;
#endif
}

// The region's threads read variables of this frame before they call TsanAcquire(). So ThreadSanitizer
// must not check this function. It checks the functions that this one calls.
__attribute__((no_sanitize("thread"))) void Team::For(int64_t n, int64_t grain,
                                                      absl::FunctionRef<void(int64_t, int64_t)> fn,
                                                      int64_t multiple_of) const {
  if (n <= 0) return;
  const int64_t ranges = std::min<int64_t>(threads_, std::max<int64_t>(1, n / grain));
  if (ranges == 1) return fn(0, n);
#ifdef _OPENMP
  int64_t length = (n + ranges - 1) / ranges;
  length = (length + multiple_of - 1) / multiple_of * multiple_of;
  TsanRelease(&region);
#pragma omp parallel num_threads(threads_)
  {
    TsanAcquire(&region);
    // OpenMP may start fewer threads than requested.
    for (int64_t i = omp_get_thread_num(); i < ranges; i += omp_get_num_threads()) {
      const int64_t begin = std::min(n, i * length), end = std::min(n, begin + length);
      if (begin < end) fn(begin, end);
    }
    TsanRelease(&region);
  }
  TsanAcquire(&region);
#else
  fn(0, n);
#endif
}

}  // namespace tensord::server::cpu
