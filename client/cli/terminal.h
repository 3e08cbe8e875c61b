// Properties of an output: its width, and whether it shows colours.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace tensord::cli {

enum class Style { kBold, kDim, kRed, kGreen, kYellow, kCyan };

// A value type. The default is a pipe: 80 columns, plain.
struct Terminal {
  int width = 80;
  bool is_terminal = false;
  bool color = false;

  // Returns the text in that style if `color`, otherwise unchanged.
  std::string Paint(Style style, absl::string_view text) const;
};

// Looks at a file descriptor. The width is the terminal's, or $COLUMNS, or 80, and never below 40;
// colours go to terminals alone, and not where $NO_COLOR is set or $TERM is "dumb".
Terminal DetectTerminal(int fd);

}  // namespace tensord::cli
