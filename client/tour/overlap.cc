// The tour's step that compares two devices in parallel with one after the other.
#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "tensord/client/cli/listings.h"
#include "tensord/client/cli/text.h"
#include "tensord/client/tour/plan.h"
#include "tensord/client/tour/steps.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::tour {
namespace {

constexpr int64_t kWorkSide = 1024;
constexpr absl::Duration kWorkTime = absl::Milliseconds(400);
constexpr int kMaxProducts = 500;

// A chain of products: each needs the previous one.
Tensor Chain(const Tensor& m, int products) {
  Tensor result = m;
  for (int i = 0; i < products; ++i) result = Matmul(result, m);
  return result;
}

// Returns a random matrix whose powers neither grow nor vanish.
Tensor SteadyMatrix(const Device& device) {
  const double bound = std::sqrt(3.0 / kWorkSide);
  return Uniform(device, {kWorkSide, kWorkSide}, /*seed=*/1, {.low = -bound, .high = bound});
}

bool ShareHardware(const Tour& tour) { return tour.infos[0].uuid == tour.infos[1].uuid; }

std::string ExplainRatio(const Tour& tour, double ratio) {
  const std::string text =
      absl::StrCat("In parallel the work was ", cli::FormatThreeDigits(ratio), " times as fast.");
  if (!ShareHardware(tour)) return text;
  if (tour.a.kind() != DeviceKind::kCpu) {
    return absl::StrCat(text,
                        " Both devices are on one GPU here, and one device alone can keep the GPU "
                        "busy: on two GPUs the ratio comes near 2.");
  }
  return absl::StrCat(text, " Both devices are on the same processors here, ", tour.a.name(),
                      " with ", cli::ComputeText(tour.infos[0]), " and ", tour.b.name(), " with ",
                      cli::ComputeText(tour.infos[1]),
                      ": if no other program uses these processors, the ratio comes near 2.");
}

}  // namespace

absl::Status OverlapWork(Tour& tour) {
  Narrator& narrator = tour.narrator;
  narrator.Heading("Two devices in parallel");
  narrator.Print(
      "Because calls don't wait, one thread keeps both devices busy. Each device computes some "
      "products, first one after the other, then in parallel; the better of two runs counts.");
  narrator.Code(
      "Chain(p).Wait();  Chain(q).Wait();              // one after the other\n"
      "\n"
      "Tensor r = Chain(p), s = Chain(q);              // in parallel\n"
      "r.Wait();  s.Wait();");
  const Tensor p = SteadyMatrix(tour.a);
  const Tensor q = SteadyMatrix(tour.b);
  TENSORD_ASSIGN_OR_RETURN(const absl::Duration once_a, TimeProduct(tour.a, kWorkSide));
  TENSORD_ASSIGN_OR_RETURN(const absl::Duration once_b, TimeProduct(tour.b, kWorkSide));
  int products_a = Repetitions(once_a, kWorkTime, kMaxProducts);
  int products_b = Repetitions(once_b, kWorkTime, kMaxProducts);
  // Equal devices get the same work: their times differ only by noise.
  if (ShareHardware(tour)) products_a = products_b = std::min(products_a, products_b);
  TENSORD_ASSIGN_OR_RETURN(const absl::Duration first,
                           MinTime([&] { return Finish(Chain(p, products_a)); }));
  TENSORD_ASSIGN_OR_RETURN(const absl::Duration second,
                           MinTime([&] { return Finish(Chain(q, products_b)); }));
  TENSORD_ASSIGN_OR_RETURN(const absl::Duration together, MinTime([&] {
                             const Tensor r = Chain(p, products_a);
                             const Tensor s = Chain(q, products_b);
                             TENSORD_RETURN_IF_ERROR(Finish(r));
                             return Finish(s);
                           }));
  const double flops_a = products_a * MatmulFlops(kWorkSide);
  const double flops_b = products_b * MatmulFlops(kWorkSide);
  cli::Table table({{""},
                    {"products", cli::Align::kRight},
                    {"time", cli::Align::kRight},
                    {"speed", cli::Align::kRight}},
                   cli::Frame::kNone);
  table.AddRow({absl::StrCat(tour.a.name(), " alone"), absl::StrCat(products_a),
                cli::FormatElapsed(first), FlopRate(flops_a, first)});
  table.AddRow({absl::StrCat(tour.b.name(), " alone"), absl::StrCat(products_b),
                cli::FormatElapsed(second), FlopRate(flops_b, second)});
  table.AddRow({"one after the other", absl::StrCat(products_a + products_b),
                cli::FormatElapsed(first + second), FlopRate(flops_a + flops_b, first + second)});
  table.AddRow({"in parallel", absl::StrCat(products_a + products_b), cli::FormatElapsed(together),
                FlopRate(flops_a + flops_b, together)});
  narrator.Show(table);
  narrator.Print(ExplainRatio(tour, absl::FDivDuration(first + second, together)));
  return absl::OkStatus();
}

}  // namespace tensord::tour
