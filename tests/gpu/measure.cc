#include "tensord/tests/gpu/measure.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::gpu {
namespace {

constexpr int kMaxRepetitions = 20000;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

absl::Status Compare(const Row& row, const Contender& ours, const Contender& reference) {
  if (ours.checksum == nullptr || reference.checksum == nullptr) return absl::OkStatus();
  TENSORD_ASSIGN_OR_RETURN(const Checksum a, ours.checksum());
  TENSORD_ASSIGN_OR_RETURN(const Checksum b, reference.checksum());
  if (Agree(a, b, row.tolerance)) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat(
      "the result differs from that of %s: checksum %.9g and %.9g, norm %.9g and %.9g, tolerance "
      "%.2g",
      reference.name, a.weighted, b.weighted, a.norm, b.norm, row.tolerance));
}

// Returns how many repetitions take about `seconds`. Early repetitions also load and allocate, so
// the number is computed from the last run, which is the longest.
absl::StatusOr<int> Calibrate(const Contender& contender, double seconds) {
  int n = 1;
  while (true) {
    TENSORD_ASSIGN_OR_RETURN(const double taken, contender.run(n));
    if (taken >= seconds / 4 || n == kMaxRepetitions) {
      return static_cast<int>(std::clamp<double>(n * seconds / taken, 1, kMaxRepetitions));
    }
    n = std::min(kMaxRepetitions, 4 * n);
  }
}

}  // namespace

Contender TimedByHost(std::string name, std::function<absl::Status(int n)> work,
                      std::function<absl::StatusOr<Checksum>()> checksum) {
  auto run = [work = std::move(work)](int n) -> absl::StatusOr<double> {
    const auto start = std::chrono::steady_clock::now();
    TENSORD_RETURN_IF_ERROR(work(n));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  return {std::move(name), std::move(run), std::move(checksum)};
}

absl::StatusOr<Figures> Measure(const Row& row, Contender& ours, Contender* reference,
                                const MeasureOptions& options) {
  struct Series {
    Contender* contender;
    int n = 1;
    std::vector<double> seconds;
  };
  std::vector<Series> all = {{&ours}};
  if (reference != nullptr) all.push_back({reference});
  for (Series& series : all) {
    TENSORD_RETURN_IF_ERROR(series.contender->run(1).status());  // computes the result to compare
  }
  if (reference != nullptr) TENSORD_RETURN_IF_ERROR(Compare(row, ours, *reference));
  for (Series& series : all) {
    TENSORD_ASSIGN_OR_RETURN(series.n, Calibrate(*series.contender, options.sample_seconds));
  }
  for (int round = 0; round < options.rounds; ++round) {
    for (Series& series : all) {
      TENSORD_ASSIGN_OR_RETURN(const double taken, series.contender->run(series.n));
      series.seconds.push_back(taken / series.n);
    }
  }
  Figures figures;
  figures.ours_seconds = Median(all[0].seconds);
  if (reference == nullptr) return figures;
  figures.reference = reference->name;
  figures.reference_seconds = Median(all[1].seconds);
  std::vector<double> ratios;
  for (int round = 0; round < options.rounds; ++round) {
    ratios.push_back(all[1].seconds[round] / all[0].seconds[round]);
  }
  figures.ratio = Median(std::move(ratios));
  return figures;
}

double FigureOf(const Row& row, double seconds) {
  switch (row.unit) {
    case Unit::kTeraFlops:
      return row.work / seconds * 1e-12;
    case Unit::kGigabytes:
      return row.work / seconds * 1e-9;
    case Unit::kMicroseconds:
      return seconds * 1e6;
  }
  return 0;
}

const char* UnitName(Unit unit) {
  switch (unit) {
    case Unit::kTeraFlops:
      return "TFLOP/s";
    case Unit::kGigabytes:
      return "GB/s";
    case Unit::kMicroseconds:
      return "us";
  }
  return "";
}

}  // namespace tensord::gpu
