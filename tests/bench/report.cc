// Formats the results as a table and as JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "tensord/tests/bench/bench.h"

namespace tensord::bench {
namespace {

// Returns a line of the table. All cells must be ASCII, otherwise the columns don't line up.
std::string Line(const std::vector<std::string>& cells, const std::vector<size_t>& widths) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    // Aligns names to the left, figures to the right.
    const bool left = i == 0 || i == 2 || i == 3;
    const int width = static_cast<int>(widths[i]);
    absl::StrAppendFormat(&line, left ? "%-*s" : "%*s", width, cells[i]);
    line += i + 1 < cells.size() ? "  " : "\n";
  }
  return line;
}

std::string Figure(double value) {
  if (value >= 100000) return absl::StrFormat("%.2f M", value * 1e-6);
  return value >= 1000 ? absl::StrFormat("%.0f", value) : absl::StrFormat("%.3g", value);
}

std::vector<std::string> Cells(const Row& row) {
  return {row.measure,
          Figure(row.ours),
          row.unit,
          row.reference,
          Figure(row.reference_value),
          absl::StrFormat("%.2f", row.ratio),
          row.goal ? absl::StrFormat(">= %.2f", *row.goal) : "",
          !row.goal   ? ""
          : row.met() ? "yes"
                      : "NO"};
}

}  // namespace

std::string Table(const Bench& bench) {
  std::vector<std::vector<std::string>> lines = {
      {"measure", "ours", "unit", "limit or peer", "theirs", "ratio", "goal", "met"}};
  for (const Row& row : bench.rows()) lines.push_back(Cells(row));
  std::vector<size_t> widths(lines.front().size());
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string table;
  for (const auto& line : lines) table += Line(line, widths);
  for (const auto& [what, why] : bench.skipped()) table += "skipped: " + what + ": " + why + "\n";
  const auto with_goal = std::count_if(bench.rows().begin(), bench.rows().end(),
                                       [](const Row& row) { return row.goal.has_value(); });
  const auto missed = std::count_if(bench.rows().begin(), bench.rows().end(),
                                    [](const Row& row) { return !row.met(); });
  absl::StrAppendFormat(&table, "%d of %d goals met\n", with_goal - missed, with_goal);
  return table;
}

std::string Json(const Bench& bench) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : bench.rows()) {
    nlohmann::json one = {{"measure", row.measure},
                          {"unit", row.unit},
                          {"ours", row.ours},
                          {"reference", row.reference},
                          {"reference_value", row.reference_value},
                          {"ratio", row.ratio},
                          {"goal", nullptr},
                          {"met", nullptr}};
    if (row.goal) {
      one["goal"] = *row.goal;
      one["met"] = row.met();
    }
    rows.push_back(std::move(one));
  }
  return rows.dump(2) + "\n";
}

}  // namespace tensord::bench
