#include "tensord/common/device_name.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"

namespace tensord {
namespace {

constexpr size_t kMaxIndexDigits = 4;

std::optional<int> ParseIndex(absl::string_view digits) {
  int index = 0;
  if (digits.empty() || digits.size() > kMaxIndexDigits ||
      !std::all_of(digits.begin(), digits.end(), [](char c) { return absl::ascii_isdigit(c); }) ||
      !absl::SimpleAtoi(digits, &index)) {
    return std::nullopt;
  }
  return index;
}

}  // namespace

bool DeviceKind::IsValidName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_islower(c); });
}

absl::StatusOr<DeviceName> ParseDeviceName(absl::string_view text) {
  const size_t colon = text.find(':');
  const absl::string_view kind = text.substr(0, colon);
  const std::optional<int> index =
      colon == absl::string_view::npos ? 0 : ParseIndex(text.substr(colon + 1));
  if (DeviceKind::IsValidName(kind) && index.has_value()) {
    return DeviceName{DeviceKind(kind), *index};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", absl::CHexEscape(text.substr(0, 64)),
      "\" names no device; the form is <kind> or <kind>:<number>, such as cpu or cuda:1"));
}

}  // namespace tensord
