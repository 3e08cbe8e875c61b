#include "tensord/common/device_name.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "tensord/common/gpu_names.h"

namespace tensord {
namespace {

constexpr size_t kMaxIndexDigits = 4;
constexpr size_t kMaxShown = 64;  // bytes of a name, in an error

std::optional<int> ParseIndex(absl::string_view digits) {
  int index = 0;
  if (digits.empty() || digits.size() > kMaxIndexDigits ||
      !std::all_of(digits.begin(), digits.end(), [](char c) { return absl::ascii_isdigit(c); }) ||
      !absl::SimpleAtoi(digits, &index)) {
    return std::nullopt;
  }
  return index;
}

// Returns nullopt if `text` is malformed.
std::optional<DeviceName> Parse(absl::string_view text) {
  const size_t colon = text.find(':');
  const absl::string_view kind = text.substr(0, colon);
  const std::optional<int> index =
      colon == absl::string_view::npos ? 0 : ParseIndex(text.substr(colon + 1));
  if (!DeviceKind::IsValidName(kind) || !index.has_value()) return std::nullopt;
  return DeviceName{DeviceKind(kind), *index};
}

// Returns the name that a malformed one probably stands for: "cpu" for "CPU", "cuda:0" for "cuda0".
// If there is none, returns "".
std::string ProbableName(absl::string_view text) {
  const std::string lower = absl::AsciiStrToLower(absl::StripAsciiWhitespace(text));
  const auto end = std::find_if_not(lower.begin(), lower.end(), absl::ascii_isalpha);
  const std::string kind(lower.begin(), end);
  const std::string rest(end, lower.end());
  const std::string name = absl::StrCat(IsOtherNameForGpu(kind) ? DeviceKind::kCuda.name() : kind,
                                        ParseIndex(rest).has_value() ? ":" : "", rest);
  const std::optional<DeviceName> parsed = Parse(name);
  if (!parsed.has_value()) return "";
  return parsed->kind == DeviceKind::kCpu || parsed->kind == DeviceKind::kCuda ? name : "";
}

}  // namespace

bool DeviceKind::IsValidName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_islower(c); });
}

absl::StatusOr<DeviceName> ParseDeviceName(absl::string_view text) {
  if (const std::optional<DeviceName> name = Parse(text)) return *name;
  const std::string probable = ProbableName(text.substr(0, kMaxShown));
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", absl::CHexEscape(text.substr(0, kMaxShown)),
      "\" names no device; the form is <kind> or <kind>:<number>, such as cpu or cuda:1",
      probable.empty() ? "" : absl::StrCat("; did you mean \"", probable, "\"?")));
}

}  // namespace tensord
