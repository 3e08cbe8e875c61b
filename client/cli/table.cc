#include "tensord/client/cli/table.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tensord/client/cli/text.h"

namespace tensord::cli {
namespace {

std::vector<std::string> Lines(absl::string_view cell) { return absl::StrSplit(cell, '\n'); }

int CellWidth(absl::string_view cell) {
  int width = 0;
  for (const std::string& line : Lines(cell)) width = std::max(width, DisplayWidth(line));
  return width;
}

std::string Rule(absl::string_view left, absl::string_view middle, absl::string_view right,
                 const std::vector<int>& widths, int indent) {
  std::string line = Repeat(" ", indent);
  for (size_t i = 0; i < widths.size(); ++i) {
    absl::StrAppend(&line, i == 0 ? left : middle, Repeat("─", widths[i] + 2));
  }
  return absl::StrCat(line, right, "\n");
}

}  // namespace

void Table::AddRow(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back({.cells = std::move(cells)});
}

void Table::AddRule() { rows_.push_back({.rule = true}); }

int Table::FrameWidth() const {
  const int columns = static_cast<int>(columns_.size());
  return frame_ == Frame::kBox ? 3 * columns + 1 : 2 * (columns - 1);
}

std::vector<int> Table::NaturalWidths() const {
  std::vector<int> widths;
  for (const Column& column : columns_) widths.push_back(CellWidth(column.header));
  for (const Row& row : rows_) {
    for (size_t i = 0; i < row.cells.size(); ++i) {
      widths[i] = std::max(widths[i], CellWidth(row.cells[i]));
    }
  }
  return widths;
}

int Table::NaturalWidth() const {
  const std::vector<int> widths = NaturalWidths();
  return std::accumulate(widths.begin(), widths.end(), FrameWidth());
}

std::vector<int> Table::FittedWidths(int width) const {
  std::vector<int> widths = NaturalWidths();
  int excess = NaturalWidth() - width;
  while (excess > 0) {
    int widest = -1;
    for (int i = 0; i < static_cast<int>(widths.size()); ++i) {
      const int min_width = columns_[i].min_width;
      if (min_width == 0 || widths[i] <= min_width) continue;
      if (widest < 0 || widths[i] > widths[widest]) widest = i;
    }
    if (widest < 0) break;
    --widths[widest];
    --excess;
  }
  return widths;
}

void Table::AppendRow(const std::vector<std::string>& cells, const std::vector<int>& widths,
                      int indent, const Terminal* header_style, std::string& out) const {
  std::vector<std::vector<std::string>> lines;
  size_t height = 1;
  for (const std::string& cell : cells) {
    lines.push_back(Lines(cell));
    height = std::max(height, lines.back().size());
  }
  const bool box = frame_ == Frame::kBox;
  for (size_t y = 0; y < height; ++y) {
    std::string line = Repeat(" ", indent);
    for (size_t i = 0; i < cells.size(); ++i) {
      std::string text = y < lines[i].size() ? Truncate(lines[i][y], widths[i]) : "";
      text =
          columns_[i].align == Align::kLeft ? PadRight(text, widths[i]) : PadLeft(text, widths[i]);
      if (header_style != nullptr) text = header_style->Paint(Style::kDim, text);
      absl::StrAppend(&line, box ? "│ " : i > 0 ? "  " : "", text, box ? " " : "");
    }
    if (box) absl::StrAppend(&line, "│");
    while (!line.empty() && line.back() == ' ') line.pop_back();
    absl::StrAppend(&out, line, "\n");
  }
}

std::string Table::Render(const Terminal& terminal, int indent) const {
  const std::vector<int> widths = FittedWidths(terminal.width - indent);
  const bool box = frame_ == Frame::kBox;
  std::vector<std::string> headers;
  bool has_header = false;
  for (const Column& column : columns_) {
    headers.push_back(column.header);
    has_header = has_header || !column.header.empty();
  }
  std::string out;
  if (box) out += Rule("┌", "┬", "┐", widths, indent);
  if (has_header) {
    AppendRow(headers, widths, indent, &terminal, out);
    if (box) out += Rule("├", "┼", "┤", widths, indent);
  }
  for (const Row& row : rows_) {
    if (row.rule) {
      if (box) out += Rule("├", "┼", "┤", widths, indent);
    } else {
      AppendRow(row.cells, widths, indent, nullptr, out);
    }
  }
  if (box) out += Rule("└", "┴", "┘", widths, indent);
  return out;
}

}  // namespace tensord::cli
