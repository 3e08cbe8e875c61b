// Writes the output of the tour: headings, sentences, code, results.
#pragma once

#include <iosfwd>
#include <string>

#include "absl/strings/string_view.h"
#include "tensord/client/cli/table.h"
#include "tensord/client/cli/terminal.h"

namespace tensord::tour {

// Writes blocks with an empty line between them. Not thread-safe.
class Narrator {
 public:
  // `out` must outlive this object. Uses only a part of very wide terminals, because long lines are
  // hard to read.
  Narrator(std::ostream& out, const cli::Terminal& terminal);

  void Title(absl::string_view title);
  // Begins the next step, and writes its number, counted from 1.
  void Heading(absl::string_view title);
  // Writes a paragraph, wrapped.
  void Print(absl::string_view text);
  // Writes lines of C++, unchanged.
  void Code(absl::string_view lines);
  // Write a result: unchanged lines, a wrapped paragraph, or a table.
  void Show(absl::string_view lines);
  void ShowWrapped(absl::string_view text, cli::Style style);
  void Show(const cli::Table& table);
  // Writes the last line, at the left margin, green if `good`, otherwise red.
  void Conclude(absl::string_view text, bool good);

  // Returns the number of columns for results.
  int result_width() const { return terminal_.width - kResultIndent; }
  // Returns a terminal with result_width() columns, for formatting results.
  cli::Terminal result_terminal() const;
  const cli::Terminal& terminal() const { return terminal_; }
  int step() const { return step_; }

 private:
  static constexpr int kIndent = 2;
  static constexpr int kResultIndent = 4;

  std::ostream& out_;
  cli::Terminal terminal_;
  int step_ = 0;
};

}  // namespace tensord::tour
