#include "tensord/client/tour/plan.h"

#include <algorithm>

namespace tensord::tour {
namespace {

constexpr int64_t kMinSide = 512;
constexpr int64_t kMaxSide = 8192;

}  // namespace

int64_t MatmulSide(double flops_per_second, absl::Duration wanted, int64_t limit_bytes) {
  const double flops = flops_per_second * absl::ToDoubleSeconds(wanted);
  int64_t side = kMinSide;
  while (side < kMaxSide) {
    const int64_t next = 2 * side;
    // Accepts up to 1.5 times the wanted time.
    if (MatmulFlops(next) > 1.5 * flops || 3 * 4 * next * next > limit_bytes / 4) break;
    side = next;
  }
  return side;
}

int Repetitions(absl::Duration once, absl::Duration wanted, int max) {
  if (once <= absl::ZeroDuration()) return max;
  return static_cast<int>(
      std::clamp<double>(absl::FDivDuration(wanted, once), 1, static_cast<double>(max)));
}

}  // namespace tensord::tour
