#include "tensord/client/tour/confusion.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tensord/client/cli/table.h"
#include "tensord/client/cli/text.h"

namespace tensord::tour {
namespace {

constexpr size_t kMaxMistakes = 10;

std::string Percent(int64_t part, int64_t whole) {
  if (whole == 0) return "-";
  return absl::StrFormat("%.1f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

}  // namespace

int64_t Confusion::total() const {
  int64_t sum = 0;
  for (int64_t count : counts_) sum += count;
  return sum;
}

int64_t Confusion::correct() const {
  int64_t sum = 0;
  for (int i = 0; i < classes_; ++i) sum += count(i, i);
  return sum;
}

std::string Confusion::Render(const cli::Terminal& terminal, int indent) const {
  std::vector<cli::Column> columns = {{"true \\ said", cli::Align::kRight}};
  for (int i = 0; i < classes_; ++i) columns.push_back({absl::StrCat(i), cli::Align::kRight});
  columns.push_back({"right", cli::Align::kRight});
  cli::Table table(std::move(columns), cli::Frame::kNone);
  for (int label = 0; label < classes_; ++label) {
    std::vector<std::string> cells = {absl::StrCat(label)};
    int64_t row_total = 0;
    for (int said = 0; said < classes_; ++said) {
      const int64_t n = count(label, said);
      row_total += n;
      const std::string text = n == 0 ? "·" : absl::StrCat(n);
      const cli::Style style = n == 0          ? cli::Style::kDim
                               : label == said ? cli::Style::kGreen
                                               : cli::Style::kRed;
      cells.push_back(terminal.Paint(style, text));
    }
    cells.push_back(Percent(count(label, label), row_total));
    table.AddRow(std::move(cells));
  }
  if (table.NaturalWidth() + indent > terminal.width) return RenderMistakes(terminal, indent);
  return table.Render(terminal, indent);
}

std::string Confusion::RenderMistakes(const cli::Terminal& terminal, int indent) const {
  std::vector<std::tuple<int64_t, int, int>> mistakes;  // -count, label, prediction
  for (int label = 0; label < classes_; ++label) {
    for (int said = 0; said < classes_; ++said) {
      if (label != said && count(label, said) > 0) {
        mistakes.emplace_back(-count(label, said), label, said);
      }
    }
  }
  std::sort(mistakes.begin(), mistakes.end());
  if (mistakes.empty()) return absl::StrCat(cli::Repeat(" ", indent), "no mistakes\n");
  cli::Table table(
      {{"true", cli::Align::kRight}, {"said", cli::Align::kRight}, {"times", cli::Align::kRight}},
      cli::Frame::kNone);
  const size_t shown = std::min(mistakes.size(), kMaxMistakes);
  for (size_t i = 0; i < shown; ++i) {
    const auto& [negated, label, said] = mistakes[i];
    table.AddRow({absl::StrCat(label), absl::StrCat(said), absl::StrCat(-negated)});
  }
  return table.Render(terminal, indent);
}

}  // namespace tensord::tour
