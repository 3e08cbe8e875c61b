// Formats tables of text, with or without a frame.
#pragma once

#include <string>
#include <vector>

#include "tensord/client/cli/terminal.h"

namespace tensord::cli {

enum class Align { kLeft, kRight };

struct Column {
  std::string header;
  Align align = Align::kLeft;
  // If the table is too wide, the column may be cut to this width. 0: it is never cut.
  int min_width = 0;
};

enum class Frame {
  kBox,   // lines around the table, between columns and below the header
  kNone,  // two spaces between columns; the header is dim
};

// Cells are UTF-8, possibly coloured (Terminal::Paint). Headers and cells of a framed table may
// have several lines. There is a header row if any column has a header.
class Table {
 public:
  explicit Table(std::vector<Column> columns, Frame frame = Frame::kBox)
      : columns_(std::move(columns)), frame_(frame) {}

  // Adds a row with one cell per column. Missing cells are empty.
  void AddRow(std::vector<std::string> cells);
  // Adds a line between the last row and the next one. Without a frame, has no effect.
  void AddRule();

  // Returns the table's width if nothing is cut.
  int NaturalWidth() const;
  // Returns the lines, each with a newline, indented by `indent` spaces. Cuts columns so that the
  // lines fit `terminal.width`, as far as Column::min_width allows it.
  std::string Render(const Terminal& terminal, int indent = 0) const;

 private:
  struct Row {
    bool rule = false;
    std::vector<std::string> cells;
  };

  std::vector<int> NaturalWidths() const;
  std::vector<int> FittedWidths(int width) const;
  int FrameWidth() const;
  void AppendRow(const std::vector<std::string>& cells, const std::vector<int>& widths, int indent,
                 const Terminal* header_style, std::string& out) const;

  std::vector<Column> columns_;
  Frame frame_;
  std::vector<Row> rows_;
};

}  // namespace tensord::cli
