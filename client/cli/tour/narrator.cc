#include "tensord/client/cli/tour/narrator.h"

#include <algorithm>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tensord/client/cli/text.h"

namespace tensord::cli {
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

Narrator::Narrator(std::ostream& out, const Terminal& terminal) : out_(out), terminal_(terminal) {
  terminal_.width = std::min(terminal_.width, kMaxWidth);
}

Terminal Narrator::result_terminal() const {
  Terminal terminal = terminal_;
  terminal.width = result_width();
  return terminal;
}

void Narrator::Title(absl::string_view title) {
  out_ << "\n" << terminal_.Paint(Style::kBold, title) << "\n";
}

void Narrator::Heading(absl::string_view title) {
  const std::string text = absl::StrCat(++step_, "  ", title, " ");
  out_ << "\n"
       << terminal_.Paint(Style::kBold, text)
       << terminal_.Paint(Style::kDim, Repeat("─", terminal_.width - DisplayWidth(text))) << "\n";
}

void Narrator::Say(absl::string_view text) {
  out_ << "\n";
  for (const std::string& line : Wrap(text, terminal_.width - kIndent)) {
    out_ << Repeat(" ", kIndent) << line << "\n";
  }
  out_.flush();
}

void Narrator::Code(absl::string_view lines) {
  absl::ConsumeSuffix(&lines, "\n");
  out_ << "\n";
  for (absl::string_view line : absl::StrSplit(lines, '\n')) {
    out_ << Repeat(" ", kIndent) << terminal_.Paint(Style::kDim, "│") << (line.empty() ? "" : " ")
         << terminal_.Paint(Style::kCyan, line) << "\n";
  }
  out_.flush();
}

void Narrator::Show(absl::string_view lines) {
  out_ << "\n" << Indented(lines, Repeat(" ", kResultIndent)) << std::flush;
}

void Narrator::ShowWrapped(absl::string_view text, Style style) {
  out_ << "\n";
  for (const std::string& line : Wrap(text, result_width())) {
    out_ << Repeat(" ", kResultIndent) << terminal_.Paint(style, line) << "\n";
  }
  out_.flush();
}

void Narrator::Show(const Table& table) {
  out_ << "\n" << table.Render(terminal_, kResultIndent) << std::flush;
}

void Narrator::Conclude(absl::string_view text, bool good) {
  out_ << "\n";
  for (const std::string& line : Wrap(text, terminal_.width)) {
    out_ << terminal_.Paint(good ? Style::kGreen : Style::kRed, line) << "\n";
  }
  out_.flush();
}

}  // namespace tensord::cli
