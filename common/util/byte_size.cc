#include "tensord/common/util/byte_size.h"

#include <cmath>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tensord {
namespace {

// Returns the bytes of a unit. Returns 0 if there is no such unit.
double UnitBytes(absl::string_view unit) {
  constexpr struct {
    absl::string_view name;
    double bytes;
  } kUnits[] = {{"", 1},         {"b", 1},    {"kib", 0x1p10}, {"mib", 0x1p20}, {"gib", 0x1p30},
                {"tib", 0x1p40}, {"kb", 1e3}, {"mb", 1e6},     {"gb", 1e9},     {"tb", 1e12}};
  const std::string lower = absl::AsciiStrToLower(unit);
  for (const auto& known : kUnits) {
    if (known.name == absl::string_view(lower)) return known.bytes;
  }
  return 0;
}

absl::Status InvalidSizeError(absl::string_view text) {
  constexpr size_t kMaxShown = 64;
  return absl::InvalidArgumentError(absl::StrCat("\"", absl::CHexEscape(text.substr(0, kMaxShown)),
                                                 text.size() > kMaxShown ? "…" : "",
                                                 "\" is not a size: use ", kByteSizeForm));
}

}  // namespace

absl::StatusOr<int64_t> ParseByteSize(absl::string_view text) {
  int64_t integer = 0;
  if (absl::SimpleAtoi(text, &integer)) {
    if (integer < 0) return InvalidSizeError(text);
    return integer;
  }
  size_t digits = text.size();
  while (digits > 0 && absl::ascii_isalpha(text[digits - 1])) --digits;
  const double factor = UnitBytes(text.substr(digits));
  double number = 0;
  const bool is_number =
      absl::SimpleAtod(absl::StripAsciiWhitespace(text.substr(0, digits)), &number);
  if (factor == 0 || !is_number) return InvalidSizeError(text);
  const double bytes = std::floor(number * factor);
  constexpr double kPastHighest = 0x1p63;
  if (!(bytes >= 0 && bytes < kPastHighest)) return InvalidSizeError(text);
  return static_cast<int64_t>(bytes);
}

}  // namespace tensord
