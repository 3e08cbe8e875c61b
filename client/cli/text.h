// Text for a terminal: widths in columns, and numbers with their units.
//
// Text is UTF-8. A code point counts as one column, because tensorctl prints no wide characters.
// Escape sequences for colours count as no column. All functions are pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tensord::cli {

int DisplayWidth(absl::string_view text);

// Pad with spaces on the right or on the left to `width` columns. Wider text is unchanged.
std::string PadRight(absl::string_view text, int width);
std::string PadLeft(absl::string_view text, int width);

// Cuts text to `width` columns. If something is cut off, the last column is "…".
std::string Truncate(absl::string_view text, int width);

// Returns `text` `count` times; empty if count <= 0.
std::string Repeat(absl::string_view text, int count);

// Breaks text at spaces into lines of at most `width` columns. A wider word gets a line of its own.
// Newlines in the text are kept.
std::vector<std::string> Wrap(absl::string_view text, int width);

// Makes text from another machine safe to print: control characters and invalid UTF-8 become "?".
std::string Printable(absl::string_view text);

// Reduces gRPC's message about a failed connection to the system's error: "Connection refused".
// Other messages are unchanged. The result is safe to print.
std::string ConnectionFailure(absl::string_view message);

// "0 B", "512 B", "1.50 KiB", "23.4 GiB": three digits and a binary unit.
std::string FormatBytes(int64_t bytes);
// "1,797".
std::string FormatCount(int64_t count);
// Three digits and a unit: "85.0 µs", "12.3 ms", "1.50 s"; from two minutes on "3 min", "2 h 5
// min", "4 d 3 h".
std::string FormatElapsed(absl::Duration duration);
// Formats a time in the same way, but in whole seconds: "45 s".
std::string FormatUptime(absl::Duration duration);
// "2.35 GiB/s"; "-" if `duration` is zero.
std::string FormatBandwidth(int64_t bytes, absl::Duration duration);
// Three digits: "0.123", "1.23", "12.3", "123", "1,234".
std::string FormatThreeDigits(double value);

// Returns "███▌░░░░" with `width` columns. Any fraction above 0 is visible.
std::string UsageBar(double fraction, int width);

}  // namespace tensord::cli
