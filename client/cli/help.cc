#include "tensord/client/cli/help.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tensord/client/cli/text.h"

namespace tensord::cli {
namespace {

// Longer lines are harder to read.
constexpr int kMaxTextWidth = 96;

int TextWidth(const Terminal& terminal) { return std::min(terminal.width, kMaxTextWidth); }

std::string Heading(const Terminal& terminal, absl::string_view text) {
  return absl::StrCat("\n", terminal.Paint(Style::kBold, text), "\n");
}

// Returns two columns: the terms, and their explanations, which are wrapped.
std::string Definitions(const Terminal& terminal,
                        const std::vector<std::pair<std::string, std::string>>& entries) {
  int widest = 0;
  for (const auto& [term, meaning] : entries) widest = std::max(widest, DisplayWidth(term));
  std::string out;
  for (const auto& [term, meaning] : entries) {
    std::string left = PadRight(terminal.Paint(Style::kCyan, term), widest);
    for (const std::string& line : Wrap(meaning, TextWidth(terminal) - widest - 4)) {
      absl::StrAppend(&out, "  ", left, "  ", line, "\n");
      left = Repeat(" ", widest);
    }
  }
  return out;
}

std::string FlagDefinitions(const Terminal& terminal, absl::Span<const FlagSpec> flags) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (const FlagSpec& flag : flags) {
    entries.emplace_back(absl::StrCat("--", flag.name, flag.value.empty() ? "" : " ", flag.value),
                         flag.help);
  }
  return Definitions(terminal, entries);
}

std::string Examples(const Terminal& terminal, absl::Span<const Example> examples) {
  std::string out;
  for (const Example& example : examples) {
    absl::StrAppend(&out, "  ", terminal.Paint(Style::kCyan, example.command), "\n");
    for (const std::string& line : Wrap(example.meaning, TextWidth(terminal) - 6)) {
      absl::StrAppend(&out, "      ", line, "\n");
    }
  }
  return out;
}

std::string Text(const Terminal& terminal, absl::string_view text) {
  std::string out;
  for (const std::string& line : Wrap(text, TextWidth(terminal))) absl::StrAppend(&out, line, "\n");
  return out;
}

}  // namespace

std::string OverviewHelp(absl::Span<const CommandSpec> commands,
                         absl::Span<const FlagSpec> general_flags, const Terminal& terminal) {
  std::vector<std::pair<std::string, std::string>> names;
  for (const CommandSpec& command : commands) names.emplace_back(command.name, command.summary);
  names.emplace_back("help COMMAND", "explains a command, with examples");
  return absl::StrCat(
      Text(terminal,
           "tensorctl inspects and tests tensord servers. A tensord server lets programs on other "
           "machines use its GPUs and CPUs: a program makes tensors there, computes with them "
           "there, and reads results back."),
      Heading(terminal, "Usage"), "  tensorctl [--server ADDRESS] COMMAND [FLAGS]\n",
      Heading(terminal, "Commands"), Definitions(terminal, names),
      Heading(terminal, "Flags of every command"), FlagDefinitions(terminal, general_flags),
      Heading(terminal, "First steps"),
      Examples(terminal,
               {{"tensord --devices=cpu,cpu &", "Start a server with two devices on this machine."},
                {"tensorctl devices", "See its devices."},
                {"tensorctl tour", "See what programs can do with them, with the code."},
                {"tensorctl --server gpu-box:50051 devices", "See the devices of another machine."},
                {"tensorctl --servers a:50051,b:50051 devices",
                 "See the devices of several machines."}}),
      Heading(terminal, "Exit status"),
      Text(terminal,
           "0 success, 1 failure, 2 a mistake in the command line. "
           "health and cluster check have other exit statuses: see tensorctl help health and "
           "tensorctl help cluster."));
}

std::string CommandHelp(const CommandSpec& command, absl::Span<const FlagSpec> general_flags,
                        const Terminal& terminal) {
  std::string out =
      absl::StrCat(terminal.Paint(Style::kBold, absl::StrCat("tensorctl ", command.name)), ": ",
                   command.summary, "\n\n", Text(terminal, command.description));
  absl::StrAppend(&out, Heading(terminal, "Usage"), "  tensorctl ", command.name,
                  command.operand.empty() ? "" : " ", command.operand,
                  command.operands.empty() ? "" : absl::StrCat(" [", command.operands, "]"),
                  command.flags.empty() ? "" : " [FLAGS]", "\n");
  if (!command.flags.empty()) {
    absl::StrAppend(&out, Heading(terminal, "Flags"), FlagDefinitions(terminal, command.flags));
  }
  absl::StrAppend(&out, Heading(terminal, "Flags of every command"),
                  FlagDefinitions(terminal, general_flags));
  if (!command.examples.empty()) {
    absl::StrAppend(&out, Heading(terminal, "Examples"), Examples(terminal, command.examples));
  }
  return out;
}

}  // namespace tensord::cli
