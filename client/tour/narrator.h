// Output of the tour: headings, sentences, code, results.
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
  // Begins the next step; counts from 1.
  void Heading(absl::string_view title);
  // A paragraph, wrapped.
  void Say(absl::string_view text);
  // Lines of C++, as they are.
  void Code(absl::string_view lines);
  // A result: lines as they are, or a paragraph that is wrapped, or a table.
  void Show(absl::string_view lines);
  void ShowWrapped(absl::string_view text, cli::Style style);
  void Show(const cli::Table& table);
  // Writes the last line, at the left margin, green if `good`, otherwise red.
  void Conclude(absl::string_view text, bool good);

  // The columns of a result's lines.
  int result_width() const { return terminal_.width - kResultIndent; }
  // The terminal for drawing results, with result_width() columns.
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
