#include "tensord/server/device/cpu/team.h"

#include <algorithm>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "tensord/common/util/tsan_annotations.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {
namespace {

// The address that all regions pass to TsanRelease() and TsanAcquire(). It isn't on the stack: a
// thread would have to read variables of the region, which are not handed over yet, to find it.
char region;

// The number of grains that a thread computes between two checks of its stop token: about a
// millisecond of work.
constexpr double kGrainsPerPiece = 64;

int64_t RoundUp(int64_t n, int64_t multiple_of) {
  return (n + multiple_of - 1) / multiple_of * multiple_of;
}

}  // namespace

void Team::Bind() const {
#ifdef _OPENMP
  omp_set_dynamic(0);
  omp_set_num_threads(threads_);
  // Starts the threads now. If OpenMP can't start a thread later, it ends the process. The compiler
  // would remove an empty region.
#pragma omp parallel num_threads(threads_)
  {
#pragma omp barrier
  }
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

// The region's threads read variables of this frame before they call TsanAcquire(). So
// ThreadSanitizer must not check this function. It checks the functions that this one calls.
__attribute__((no_sanitize("thread"))) void Team::Divide(int64_t n, double grain, Range fn,
                                                         int64_t multiple_of) const {
  if (n <= 0) return;
  const double grains = static_cast<double>(n) / std::max(1.0, grain);
  const int64_t ranges = grains < 2 ? 1 : std::min<int64_t>(threads_, static_cast<int64_t>(grains));
  if (ranges == 1) return fn(0, n);
#ifdef _OPENMP
  const int64_t length = RoundUp((n + ranges - 1) / ranges, multiple_of);
  const StopToken* const token = StopScope::Current();
  TsanRelease(&region);
#pragma omp parallel num_threads(threads_)
  {
    TsanAcquire(&region);
    const StopScope scope(token);
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

void Team::InPieces(int64_t begin, int64_t end, double grain, Range fn, int64_t multiple_of) {
  const StopToken* const token = StopScope::Current();
  if (token == nullptr) return fn(begin, end);
  const double units = std::clamp(kGrainsPerPiece * grain, 1.0, static_cast<double>(end - begin));
  const int64_t piece = RoundUp(static_cast<int64_t>(units), multiple_of);
  while (begin < end && !MustStop()) {
    const int64_t next = std::min(end, begin + piece);
    fn(begin, next);
    begin = next;
  }
}

}  // namespace tensord::server::cpu
