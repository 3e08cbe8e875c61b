#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tensord/common/status_macros.h"
#include "tensord/server/device/device_factory.h"

namespace tensord::server {
namespace {

constexpr absl::string_view kForm =
    "devices are a list such as cpu,cpu=2GiB,cuda:0,cuda:1=8GiB: cpu or cuda, which GPU (default "
    "0), and a memory limit in bytes or with KiB, MiB, GiB, TiB, KB, MB, GB or TB";

absl::Status FormError(absl::string_view text, absl::string_view what) {
  constexpr size_t kMostShown = 64;
  const absl::string_view shown = text.substr(0, kMostShown);
  return absl::InvalidArgumentError(absl::StrCat(
      "device \"", shown, shown.size() < text.size() ? "…" : "", "\": ", what, "; ", kForm));
}

// The factor a unit stands for; 0 where there is no such unit.
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

// "2GiB", "512 MiB", "1e9", "1048576"; -1 where it is none of these or less than a byte.
int64_t ParseSize(absl::string_view text) {
  int64_t integer = 0;
  if (absl::SimpleAtoi(text, &integer)) return integer > 0 ? integer : -1;
  size_t digits = text.size();
  while (digits > 0 && absl::ascii_isalpha(text[digits - 1])) --digits;
  const double factor = UnitBytes(text.substr(digits));
  double number = 0;
  if (factor == 0 || !absl::SimpleAtod(absl::StripAsciiWhitespace(text.substr(0, digits)), &number))
    return -1;
  const double bytes = std::floor(number * factor);
  constexpr double kPastHighest = 0x1p63;
  return bytes >= 1 && bytes < kPastHighest ? static_cast<int64_t>(bytes) : -1;
}

absl::StatusOr<DeviceRequest> ParseDevice(absl::string_view text) {
  const size_t equals = text.find('=');
  absl::string_view name = absl::StripAsciiWhitespace(text.substr(0, equals));
  const bool faulty = absl::ConsumePrefix(&name, "faulty:");
  const absl::StatusOr<DeviceName> parsed = ParseDeviceName(name);
  if (!parsed.ok()) return FormError(text, "there is no such device");
  DeviceRequest request;
  request.faulty = faulty;
  request.kind = parsed->kind;
  request.physical_index = parsed->index;
  if (request.kind == DeviceKind::kCpu && request.physical_index != 0) {
    return FormError(text, "a host is one CPU device; for several logical ones say cpu,cpu");
  }
  if (faulty && request.kind != DeviceKind::kCpu) {
    return FormError(text, "only CPU devices can be made faulty");
  }
  if (equals == absl::string_view::npos) return request;
  request.limit_bytes = ParseSize(absl::StripAsciiWhitespace(text.substr(equals + 1)));
  if (request.limit_bytes < 0) return FormError(text, "the memory limit must be a positive size");
  return request;
}

}  // namespace

absl::StatusOr<std::vector<DeviceRequest>> ParseDevices(absl::string_view text) {
  std::vector<DeviceRequest> requests;
  if (absl::StripAsciiWhitespace(text).empty()) return requests;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    TENSORD_ASSIGN_OR_RETURN(const DeviceRequest request,
                             ParseDevice(absl::StripAsciiWhitespace(part)));
    requests.push_back(request);
  }
  return requests;
}

}  // namespace tensord::server
