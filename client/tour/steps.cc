#include "tensord/client/tour/steps.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tensord/client/cli/text.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::tour {

absl::Status Expect(bool condition, absl::string_view message) {
  return condition ? absl::OkStatus() : absl::FailedPreconditionError(message);
}

absl::Status Finish(const Tensor& tensor) {
  // Reads one element back, which needs the whole value.
  const std::vector<int64_t> zeros(tensor.rank(), 0);
  const std::vector<int64_t> ones(tensor.rank(), 1);
  return Slice(tensor, zeros, ones).Item<float>().status();
}

absl::StatusOr<absl::Duration> Time(const std::function<absl::Status()>& work) {
  const absl::Time start = absl::Now();
  TENSORD_RETURN_IF_ERROR(work());
  return absl::Now() - start;
}

absl::StatusOr<absl::Duration> MinTime(const std::function<absl::Status()>& work) {
  TENSORD_ASSIGN_OR_RETURN(const absl::Duration first, Time(work));
  TENSORD_ASSIGN_OR_RETURN(const absl::Duration second, Time(work));
  return std::min(first, second);
}

absl::StatusOr<absl::Duration> TimeProduct(const Device& device, int64_t side) {
  const Tensor m = Uniform(device, {side, side}, /*seed=*/1);
  absl::Duration best = absl::InfiniteDuration();
  for (int i = 0; i < 4; ++i) {
    TENSORD_ASSIGN_OR_RETURN(const absl::Duration once, Time([&] { return Finish(Matmul(m, m)); }));
    if (i > 0) best = std::min(best, once);  // the first one warms up
  }
  return best;
}

std::string FlopRate(double flops, absl::Duration duration) {
  return absl::StrCat(cli::FormatThreeDigits(flops / absl::ToDoubleSeconds(duration) / 1e9),
                      " GFLOP/s");
}

std::string Ratio(absl::Duration longer, absl::Duration shorter) {
  return absl::StrCat(cli::FormatThreeDigits(absl::FDivDuration(longer, shorter)), " times");
}

}  // namespace tensord::tour
