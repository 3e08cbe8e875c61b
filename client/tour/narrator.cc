#include "tensord/client/tour/narrator.h"

#include <algorithm>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tensord/client/cli/text.h"

namespace tensord::tour {
namespace {

constexpr int kMaxWidth = 100;

std::string Indented(absl::string_view lines, absl::string_view margin) {
  absl::ConsumeSuffix(&lines, "\n");
  std::string out;
  for (absl::string_view line : absl::StrSplit(lines, '\n')) {
    absl::StrAppend(&out, line.empty() ? "" : margin, line, "\n");
  }
  return out;
}

}  // namespace

Narrator::Narrator(std::ostream& out, const cli::Terminal& terminal)
    : out_(out), terminal_(terminal) {
  terminal_.width = std::min(terminal_.width, kMaxWidth);
}

cli::Terminal Narrator::result_terminal() const {
  cli::Terminal terminal = terminal_;
  terminal.width = result_width();
  return terminal;
}

void Narrator::Title(absl::string_view title) {
  out_ << "\n" << terminal_.Paint(cli::Style::kBold, title) << "\n";
}

void Narrator::Heading(absl::string_view title) {
  const std::string text = absl::StrCat(++step_, "  ", title, " ");
  out_ << "\n"
       << terminal_.Paint(cli::Style::kBold, text)
       << terminal_.Paint(cli::Style::kDim,
                          cli::Repeat("─", terminal_.width - cli::DisplayWidth(text)))
       << "\n";
}

void Narrator::Print(absl::string_view text) {
  out_ << "\n";
  for (const std::string& line : cli::Wrap(text, terminal_.width - kIndent)) {
    out_ << cli::Repeat(" ", kIndent) << line << "\n";
  }
  out_.flush();
}

void Narrator::Code(absl::string_view lines) {
  absl::ConsumeSuffix(&lines, "\n");
  out_ << "\n";
  for (absl::string_view line : absl::StrSplit(lines, '\n')) {
    out_ << cli::Repeat(" ", kIndent) << terminal_.Paint(cli::Style::kDim, "│")
         << (line.empty() ? "" : " ") << terminal_.Paint(cli::Style::kCyan, line) << "\n";
  }
  out_.flush();
}

void Narrator::Show(absl::string_view lines) {
  out_ << "\n" << Indented(lines, cli::Repeat(" ", kResultIndent)) << std::flush;
}

void Narrator::ShowWrapped(absl::string_view text, cli::Style style) {
  out_ << "\n";
  for (const std::string& line : cli::Wrap(text, result_width())) {
    out_ << cli::Repeat(" ", kResultIndent) << terminal_.Paint(style, line) << "\n";
  }
  out_.flush();
}

void Narrator::Show(const cli::Table& table) {
  out_ << "\n" << table.Render(terminal_, kResultIndent) << std::flush;
}

void Narrator::Conclude(absl::string_view text, bool good) {
  out_ << "\n";
  for (const std::string& line : cli::Wrap(text, terminal_.width)) {
    out_ << terminal_.Paint(good ? cli::Style::kGreen : cli::Style::kRed, line) << "\n";
  }
  out_.flush();
}

}  // namespace tensord::tour
