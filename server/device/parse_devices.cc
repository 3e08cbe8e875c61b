#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tensord/common/util/byte_size.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/device_factory.h"

namespace tensord::server {
namespace {

constexpr absl::string_view kForm =
    "devices are a list such as cpu,cpu=2GiB,cuda:0,cuda:1=8GiB: a kind, the physical device "
    "(default 0), and a memory limit";

absl::Status FormError(absl::string_view text, absl::string_view what) {
  constexpr size_t kMaxShown = 64;
  const absl::string_view shown = text.substr(0, kMaxShown);
  return absl::InvalidArgumentError(absl::StrCat(
      "device \"", shown, shown.size() < text.size() ? "…" : "", "\": ", what, "; ", kForm));
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
    return FormError(text, "a host is one CPU device; for several logical devices, use cpu,cpu");
  }
  if (faulty && request.kind != DeviceKind::kCpu) {
    return FormError(text, "only CPU devices can be made faulty");
  }
  if (equals == absl::string_view::npos) return request;
  const absl::StatusOr<int64_t> limit =
      ParseByteSize(absl::StripAsciiWhitespace(text.substr(equals + 1)));
  if (!limit.ok()) return FormError(text, limit.status().message());
  if (*limit == 0) return FormError(text, "the memory limit must be more than 0 bytes");
  request.limit_bytes = *limit;
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
