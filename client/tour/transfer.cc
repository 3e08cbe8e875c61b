// The tour's step that compares computing with transferring.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/cli/progress.h"
#include "tensord/client/cli/text.h"
#include "tensord/client/tour/plan.h"
#include "tensord/client/tour/steps.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::tour {
namespace {

constexpr int64_t kTrialSide = 512;
constexpr absl::Duration kMatmulTime = absl::Milliseconds(400);

// Returns small whole numbers, whose products and sums are exact in float32.
std::vector<float> WholeNumbers(int64_t side, int64_t step) {
  std::vector<float> values(side * side);
  for (int64_t i = 0; i < side * side; ++i) {
    values[i] = static_cast<float>((i * step + i / side) % 7 - 3);
  }
  return values;
}

absl::Status CheckProduct(const std::vector<float>& a, const std::vector<float>& b,
                          const std::vector<float>& c, int64_t side) {
  for (const auto& [row, column] :
       {std::pair<int64_t, int64_t>{0, 0}, {side / 3, side / 5}, {side - 1, side - 2}}) {
    double sum = 0;
    for (int64_t k = 0; k < side; ++k) sum += double{a[row * side + k]} * b[k * side + column];
    if (sum == c[row * side + column]) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("element [", row, ", ", column, "] of the product is ", c[row * side + column],
                     " and should be ", sum));
  }
  return absl::OkStatus();
}

struct TransferTimes {
  absl::Duration up;
  absl::Duration multiply;
  absl::Duration down;
};

absl::StatusOr<TransferTimes> TimeTransfers(Tour& tour, int64_t side) {
  const std::vector<float> left = WholeNumbers(side, 5);
  const std::vector<float> right = WholeNumbers(side, 3);
  std::vector<float> product(side * side);
  const auto send = [&](absl::string_view name, const std::vector<float>& values) {
    cli::Progress progress(absl::StrCat("Sending ", name), tour.err, tour.err_terminal);
    return FromVector(tour.a, {side, side}, values, progress.options());
  };
  TransferTimes times;
  Tensor m;
  Tensor n;
  TENSORD_ASSIGN_OR_RETURN(times.up, MinTime([&] {
                             m = send("m", left);
                             n = send("n", right);
                             TENSORD_RETURN_IF_ERROR(m.Wait());
                             return n.Wait();
                           }));
  Tensor c;
  TENSORD_ASSIGN_OR_RETURN(times.multiply, MinTime([&] {
                             c = Matmul(m, n);
                             return Finish(c);
                           }));
  TENSORD_ASSIGN_OR_RETURN(times.down, MinTime([&] {
                             cli::Progress progress("Reading m·n", tour.err, tour.err_terminal);
                             return c.ReadInto<float>(absl::MakeSpan(product), progress.options());
                           }));
  TENSORD_RETURN_IF_ERROR(CheckProduct(left, right, product, side));
  return times;
}

}  // namespace

absl::Status MultiplyAndTransfer(Tour& tour) {
  Narrator& narrator = tour.narrator;
  narrator.Heading("The costs of computing and of transferring");
  TENSORD_ASSIGN_OR_RETURN(const absl::Duration trial, TimeProduct(tour.a, kTrialSide));
  const double speed = MatmulFlops(kTrialSide) / absl::ToDoubleSeconds(trial);
  const int64_t side = MatmulSide(speed, kMatmulTime, tour.infos[0].memory.limit_bytes);
  narrator.Print(
      absl::StrCat("Two matrices of ", cli::FormatCount(side), "×", cli::FormatCount(side),
                   " go from this program to ", tour.a.name(),
                   ", are multiplied there, and the product comes back. The size is "
                   "chosen for the speed of the device; the better of two runs counts."));
  narrator.Code(absl::StrCat("Tensor m = FromVector(a, {", side, ", ", side,
                             "}, numbers);  // and n alike\n"
                             "Tensor c = Matmul(m, n);\n"
                             "absl::StatusOr<std::vector<float>> product = c.Read<float>();"));
  TENSORD_ASSIGN_OR_RETURN(const TransferTimes times, TimeTransfers(tour, side));
  const int64_t bytes = 4 * side * side;
  const double flops = MatmulFlops(side);
  cli::Table table(
      {{""}, {"", cli::Align::kRight}, {"time", cli::Align::kRight}, {"speed", cli::Align::kRight}},
      cli::Frame::kNone);
  table.AddRow({"send both", cli::FormatBytes(2 * bytes), cli::FormatElapsed(times.up),
                cli::FormatBandwidth(2 * bytes, times.up)});
  table.AddRow({"multiply", absl::StrCat(cli::FormatThreeDigits(flops / 1e9), " GFLOP"),
                cli::FormatElapsed(times.multiply), FlopRate(flops, times.multiply)});
  table.AddRow({"read the product", cli::FormatBytes(bytes), cli::FormatElapsed(times.down),
                cli::FormatBandwidth(bytes, times.down)});
  narrator.Show(table);
  const absl::Duration transferring = times.up + times.down;
  if (transferring > times.multiply) {
    narrator.Print(absl::StrCat("Transferring took ", Ratio(transferring, times.multiply),
                                " as long as multiplying: send data once, and leave results on the "
                                "device that uses them next."));
  } else {
    narrator.Print(absl::StrCat(
        "At this size the product took ", Ratio(times.multiply, transferring),
        " as long as all transfers. But work grows with the cube of the side, and data with its "
        "square: a smaller product costs less than its transfer. Leave results on the device that "
        "uses them next."));
  }
  return absl::OkStatus();
}

}  // namespace tensord::tour
