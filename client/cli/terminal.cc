#include "tensord/client/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tensord::cli {
namespace {

constexpr int kMinWidth = 40;
constexpr int kDefaultWidth = 80;

absl::string_view Code(Style style) {
  switch (style) {
    case Style::kBold:
      return "1";
    case Style::kDim:
      return "2";
    case Style::kRed:
      return "31";
    case Style::kGreen:
      return "32";
    case Style::kYellow:
      return "33";
    case Style::kCyan:
      return "36";
  }
  return "0";
}

absl::string_view Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int WidthOf(int fd) {
  winsize size = {};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  int columns = 0;
  if (absl::SimpleAtoi(Environment("COLUMNS"), &columns) && columns > 0) return columns;
  return kDefaultWidth;
}

}  // namespace

std::string Terminal::Paint(Style style, absl::string_view text) const {
  if (!color || text.empty()) return std::string(text);
  return absl::StrCat("\x1b[", Code(style), "m", text, "\x1b[0m");
}

Terminal DetectTerminal(int fd) {
  Terminal terminal;
  terminal.is_terminal = isatty(fd) == 1;
  terminal.width = std::max(kMinWidth, WidthOf(fd));
  terminal.color =
      terminal.is_terminal && Environment("NO_COLOR").empty() && Environment("TERM") != "dumb";
  return terminal;
}

}  // namespace tensord::cli
