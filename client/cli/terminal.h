// Properties of an output: its width, and whether it shows colours.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace tensord::cli {

enum class Style { kBold, kDim, kRed, kGreen, kYellow, kCyan };

// A value type. The default is for a pipe: 80 columns, no colours.
struct Terminal {
  int width = 80;
  bool is_terminal = false;
  bool color = false;

  // Returns the text in that style if `color`, otherwise unchanged.
  std::string Paint(Style style, absl::string_view text) const;
};

// Returns the properties of a file descriptor. The width is the terminal's, or else $COLUMNS, or
// else 80; at least 40. Only terminals have colours, unless $NO_COLOR is set or $TERM is "dumb".
Terminal DetectTerminal(int fd);

}  // namespace tensord::cli
