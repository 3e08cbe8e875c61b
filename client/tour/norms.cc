// The tour's step that compares one read with many reads.
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/cli/text.h"
#include "tensord/client/tour/steps.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::tour {
namespace {

constexpr int kProducts = 1000;
constexpr int64_t kSmallSide = 100;

Tensor ProductNorm(const std::vector<Tensor>& m, int i) { return Norm(Matmul(m[i], m[i + 1])); }

absl::StatusOr<std::vector<float>> NormsReadOnce(const std::vector<Tensor>& m, int products) {
  std::vector<Tensor> norms;
  for (int i = 0; i < products; ++i) norms.push_back(Reshape(ProductNorm(m, i), {1}));
  return Concat(norms).Read<float>();
}

absl::StatusOr<std::vector<float>> NormsReadOneByOne(const std::vector<Tensor>& m, int products) {
  std::vector<float> norms;
  for (int i = 0; i < products; ++i) {
    TENSORD_ASSIGN_OR_RETURN(const float norm, ProductNorm(m, i).Item<float>());
    norms.push_back(norm);
  }
  return norms;
}

// Compares the first norm with one that this program computes in double precision.
absl::Status CheckFirstNorm(const std::vector<Tensor>& m, float norm) {
  TENSORD_ASSIGN_OR_RETURN(const std::vector<float> a, m[0].Read<float>());
  TENSORD_ASSIGN_OR_RETURN(const std::vector<float> b, m[1].Read<float>());
  double squares = 0;
  for (int64_t i = 0; i < kSmallSide; ++i) {
    for (int64_t j = 0; j < kSmallSide; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < kSmallSide; ++k) {
        sum += double{a[i * kSmallSide + k]} * b[k * kSmallSide + j];
      }
      squares += sum * sum;
    }
  }
  const double wanted = std::sqrt(squares);
  return Expect(std::fabs(norm - wanted) <= 1e-4 * wanted,
                absl::StrCat("the first norm is ", norm, " and should be ", wanted));
}

absl::Status CheckEqualNorms(const std::vector<float>& once, const std::vector<float>& each) {
  TENSORD_RETURN_IF_ERROR(Expect(once.size() == each.size(), "a norm is missing"));
  for (size_t i = 0; i < once.size(); ++i) {
    if (std::fabs(once[i] - each[i]) <= 1e-5f * each[i]) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("norm ", i, " was read as ", once[i], " and as ", each[i]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadOnce(Tour& tour) {
  Narrator& narrator = tour.narrator;
  narrator.Heading("Read once, not a thousand times");
  narrator.Print(
      "1,000 products of 100×100 matrices, and the Frobenius norm of each. Ops are sent without "
      "waiting; only a read waits for the server. If the norms stay on the device, one read "
      "returns all of them.");
  narrator.Code(
      "std::vector<Tensor> norms;                                 // one read:\n"
      "for (int i = 0; i < 1000; ++i)\n"
      "  norms.push_back(Reshape(Norm(Matmul(m[i], m[i + 1])), {1}));\n"
      "auto all = Concat(norms).Read<float>();\n"
      "\n"
      "for (int i = 0; i < 1000; ++i)                             // 1,000 reads:\n"
      "  auto norm = Norm(Matmul(m[i], m[i + 1])).Item<float>();");
  std::vector<Tensor> m;
  for (int i = 0; i <= kProducts; ++i) m.push_back(Normal(tour.a, {kSmallSide, kSmallSide}, i));
  // Warms up: the first run is slower.
  TENSORD_RETURN_IF_ERROR(m.back().Wait());
  TENSORD_RETURN_IF_ERROR(NormsReadOnce(m, 20).status());

  std::vector<float> once;
  std::vector<float> each;
  const int64_t waits_before = tour.client.stats().waits;
  TENSORD_ASSIGN_OR_RETURN(const absl::Duration once_time, Time([&]() -> absl::Status {
                             TENSORD_ASSIGN_OR_RETURN(once, NormsReadOnce(m, kProducts));
                             return absl::OkStatus();
                           }));
  const int64_t waits_once = tour.client.stats().waits - waits_before;
  TENSORD_ASSIGN_OR_RETURN(const absl::Duration each_time, Time([&]() -> absl::Status {
                             TENSORD_ASSIGN_OR_RETURN(each, NormsReadOneByOne(m, kProducts));
                             return absl::OkStatus();
                           }));
  const int64_t waits_each = tour.client.stats().waits - waits_before - waits_once;

  cli::Table table({{""},
                    {"time", cli::Align::kRight},
                    {"per product", cli::Align::kRight},
                    {"waits for the server", cli::Align::kRight}},
                   cli::Frame::kNone);
  table.AddRow({"kept on the device, read once", cli::FormatElapsed(once_time),
                cli::FormatElapsed(once_time / kProducts), cli::FormatCount(waits_once)});
  table.AddRow({"read one at a time", cli::FormatElapsed(each_time),
                cli::FormatElapsed(each_time / kProducts), cli::FormatCount(waits_each)});
  narrator.Show(table);
  narrator.Print(absl::StrCat("One at a time takes ", Ratio(each_time, once_time),
                              " as long. Over a real network, with its longer round trips, the "
                              "factor is much larger."));
  TENSORD_RETURN_IF_ERROR(CheckEqualNorms(once, each));
  TENSORD_RETURN_IF_ERROR(CheckFirstNorm(m, once[0]));
  return Expect(waits_once < waits_each, "one read should wait less often than a thousand");
}

}  // namespace tensord::tour
