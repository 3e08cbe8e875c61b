#include "tensord/client/cli/text.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace tensord::cli {
namespace {

// Returns the size in bytes of the escape sequence at the beginning of `text`; 0 if there is none.
size_t EscapeLength(absl::string_view text) {
  if (text.size() < 2 || text[0] != '\x1b' || text[1] != '[') return 0;
  const size_t end = text.find('m');
  return end == absl::string_view::npos ? 0 : end + 1;
}

// Returns the size in bytes of the code point at the beginning of `text`; 0 if it isn't valid
// UTF-8.
size_t CodePointLength(absl::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  size_t length = 0;
  if (lead < 0x80) {
    length = 1;
  } else if (lead >= 0xc2 && lead < 0xe0) {
    length = 2;
  } else if (lead >= 0xe0 && lead < 0xf0) {
    length = 3;
  } else if (lead >= 0xf0 && lead < 0xf5) {
    length = 4;
  }
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  }
  return length;
}

bool IsControl(absl::string_view code_point) {
  const auto first = static_cast<unsigned char>(code_point[0]);
  if (code_point.size() == 1) return first < 0x20 || first == 0x7f;
  // U+0080 to U+009F, which include a single-character escape.
  return first == 0xc2 && static_cast<unsigned char>(code_point[1]) < 0xa0;
}

// Calls visit(piece, columns) for each code point, invalid byte and escape sequence.
template <typename Visit>
void ForEachPiece(absl::string_view text, Visit visit) {
  while (!text.empty()) {
    const size_t escape = EscapeLength(text);
    const size_t length = escape > 0 ? escape : std::max<size_t>(1, CodePointLength(text));
    visit(text.substr(0, length), escape > 0 ? 0 : 1);
    text.remove_prefix(length);
  }
}

void WrapParagraph(absl::string_view paragraph, int width, std::vector<std::string>& lines) {
  std::string line;
  int columns = 0;
  for (absl::string_view word : absl::StrSplit(paragraph, ' ', absl::SkipEmpty())) {
    const int word_columns = DisplayWidth(word);
    if (columns > 0 && columns + 1 + word_columns > width) {
      lines.push_back(std::exchange(line, ""));
      columns = 0;
    }
    if (columns > 0) absl::StrAppend(&line, " ");
    absl::StrAppend(&line, word);
    columns = DisplayWidth(line);
  }
  lines.push_back(std::move(line));
}

}  // namespace

int DisplayWidth(absl::string_view text) {
  int width = 0;
  ForEachPiece(text, [&](absl::string_view, int columns) { width += columns; });
  return width;
}

std::string Repeat(absl::string_view text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) absl::StrAppend(&result, text);
  return result;
}

std::string PadRight(absl::string_view text, int width) {
  return absl::StrCat(text, Repeat(" ", width - DisplayWidth(text)));
}

std::string PadLeft(absl::string_view text, int width) {
  return absl::StrCat(Repeat(" ", width - DisplayWidth(text)), text);
}

std::string Truncate(absl::string_view text, int width) {
  if (DisplayWidth(text) <= width) return std::string(text);
  std::string result;
  int used = 0;
  ForEachPiece(text, [&](absl::string_view piece, int columns) {
    if (columns == 0) {  // keeps the sequence that resets colours
      absl::StrAppend(&result, piece);
      return;
    }
    if (used == width - 1) absl::StrAppend(&result, "…");
    if (used < width - 1) absl::StrAppend(&result, piece);
    ++used;
  });
  return result;
}

std::vector<std::string> Wrap(absl::string_view text, int width) {
  std::vector<std::string> lines;
  for (absl::string_view paragraph : absl::StrSplit(text, '\n')) {
    WrapParagraph(paragraph, width, lines);
  }
  return lines;
}

std::string Printable(absl::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t length = CodePointLength(text);
    const absl::string_view piece = text.substr(0, std::max<size_t>(1, length));
    absl::StrAppend(&result, length == 0 || IsControl(piece) ? "?" : piece);
    text.remove_prefix(piece.size());
  }
  return result;
}

std::string ConnectionFailure(absl::string_view message) {
  for (absl::string_view before : {"remote host: ", "last error: "}) {
    const size_t at = message.rfind(before);
    if (at != absl::string_view::npos) return Printable(message.substr(at + before.size()));
  }
  return Printable(message);
}

std::string FormatThreeDigits(double value) {
  const double magnitude = std::fabs(value);
  if (magnitude >= 999.5) return FormatCount(std::llround(value));
  const int decimals = magnitude >= 99.95    ? 0
                       : magnitude >= 9.995  ? 1
                       : magnitude >= 0.9995 ? 2
                                             : 3;
  return absl::StrFormat("%.*f", decimals, value);
}

std::string FormatBytes(int64_t bytes) {
  constexpr absl::string_view kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  // A value that would be rounded to 1,024 gets the next unit.
  while (value >= 1023.5 && unit < 5) {
    value /= 1024;
    ++unit;
  }
  return absl::StrCat(FormatThreeDigits(value), " ", kUnits[unit]);
}

std::string FormatCount(int64_t count) {
  const std::string digits = absl::StrCat(count);
  const size_t sign = count < 0 ? 1 : 0;
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) out.push_back(',');
    out.push_back(digits[i]);
  }
  return out;
}

std::string FormatElapsed(absl::Duration duration) {
  const double seconds = absl::ToDoubleSeconds(duration);
  if (seconds < 1e-3) return absl::StrCat(FormatThreeDigits(seconds * 1e6), " µs");
  if (seconds < 1) return absl::StrCat(FormatThreeDigits(seconds * 1e3), " ms");
  if (seconds < 120) return absl::StrCat(FormatThreeDigits(seconds), " s");
  const int64_t minutes = absl::ToInt64Minutes(duration);
  if (minutes < 60) return absl::StrCat(minutes, " min");
  if (minutes < 24 * 60) return absl::StrCat(minutes / 60, " h ", minutes % 60, " min");
  return absl::StrCat(FormatCount(minutes / (24 * 60)), " d ", minutes / 60 % 24, " h");
}

std::string FormatUptime(absl::Duration duration) {
  if (duration >= absl::Minutes(2)) return FormatElapsed(duration);
  return absl::StrCat(absl::ToInt64Seconds(duration), " s");
}

std::string FormatBandwidth(int64_t bytes, absl::Duration duration) {
  const double seconds = absl::ToDoubleSeconds(duration);
  if (seconds <= 0) return "-";
  return absl::StrCat(FormatThreeDigits(static_cast<double>(bytes) / seconds / (1 << 30)),
                      " GiB/s");
}

std::string UsageBar(double fraction, int width) {
  if (width <= 0) return "";
  int halves = static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * 2 * width));
  if (fraction > 0) halves = std::max(halves, 1);
  const int full = halves / 2;
  const int half = halves % 2;
  return absl::StrCat(Repeat("█", full), Repeat("▌", half), Repeat("░", width - full - half));
}

}  // namespace tensord::cli
