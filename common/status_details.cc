#include "tensord/common/status_details.h"

#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tensord/common/util/protobuf_wire.h"

namespace tensord {
namespace {

constexpr absl::string_view kTypePrefix = "type.googleapis.com/google.rpc.";
constexpr absl::string_view kDomain = "tensord";

// Field numbers of the messages in googleapis.
constexpr uint32_t kStatusCode = 1, kStatusMessage = 2, kStatusDetails = 3;
constexpr uint32_t kAnyTypeUrl = 1, kAnyValue = 2;
constexpr uint32_t kReason = 1, kDomainField = 2, kMetadata = 3;
constexpr uint32_t kMapKey = 1, kMapValue = 2;
constexpr uint32_t kViolations = 1, kSubject = 1, kDescription = 2;
constexpr uint32_t kRetryDelay = 1, kSeconds = 1;

using wire::AppendVarint;

void AppendNumber(uint32_t field, uint64_t value, std::string* out) {
  AppendVarint(wire::Tag(field, wire::kVarint), out);
  AppendVarint(value, out);
}

void AppendBytes(uint32_t field, absl::string_view bytes, std::string* out) {
  AppendVarint(wire::Tag(field, wire::kDelimited), out);
  AppendVarint(bytes.size(), out);
  out->append(bytes.data(), bytes.size());
}

std::optional<uint64_t> TakeVarint(absl::string_view* in) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !in->empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(in->front());
    in->remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

struct Field {
  uint64_t number = 0;
  absl::string_view bytes;  // empty for numbers
};

// Removes the next field from `in` and returns it. Returns nullopt at the end or if `in` is
// malformed.
std::optional<Field> TakeField(absl::string_view* in) {
  const std::optional<uint64_t> tag = TakeVarint(in);
  if (!tag.has_value()) return std::nullopt;
  Field field{*tag >> 3, {}};
  size_t size = 0;
  switch (*tag & 7) {
    case wire::kVarint:
      if (!TakeVarint(in).has_value()) return std::nullopt;
      return field;
    case wire::kFixed64:
      size = 8;
      break;
    case wire::kFixed32:
      size = 4;
      break;
    case wire::kDelimited: {
      const std::optional<uint64_t> length = TakeVarint(in);
      if (!length.has_value() || *length > in->size()) return std::nullopt;
      field.bytes = in->substr(0, *length);
      size = *length;
      break;
    }
    default:
      return std::nullopt;
  }
  if (size > in->size()) return std::nullopt;
  in->remove_prefix(size);
  return field;
}

std::string EncodeErrorInfo(absl::string_view reason, const ErrorMetadata& metadata) {
  std::string info;
  AppendBytes(kReason, reason, &info);
  AppendBytes(kDomainField, kDomain, &info);
  for (const auto& [key, value] : metadata) {
    std::string entry;
    AppendBytes(kMapKey, key, &entry);
    AppendBytes(kMapValue, value, &entry);
    AppendBytes(kMetadata, entry, &info);
  }
  return info;
}

std::string ErrorInfoOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kErrorInfoUrl);
  return payload.has_value() ? std::string(*payload) : std::string();
}

absl::Status WithMessage(const absl::Status& status, absl::string_view message) {
  absl::Status changed(status.code(), message);
  status.ForEachPayload([&changed](absl::string_view url, const absl::Cord& payload) {
    changed.SetPayload(url, payload);
  });
  return changed;
}

}  // namespace

absl::Status WithErrorInfo(absl::Status status, absl::string_view reason,
                           const ErrorMetadata& metadata) {
  // Constructs the Cord from a string_view: Clang 18 and GCC mangle Cord's constructor for
  // std::string&& differently, so a program built with one doesn't link with an Abseil built with
  // the other.
  const std::string info = EncodeErrorInfo(reason, metadata);
  status.SetPayload(kErrorInfoUrl, absl::Cord(absl::string_view(info)));
  return status;
}

absl::Status WithRetryInfo(absl::Status status, int64_t seconds) {
  std::string delay, retry;
  AppendNumber(kSeconds, static_cast<uint64_t>(seconds), &delay);
  AppendBytes(kRetryDelay, delay, &retry);
  status.SetPayload(kRetryInfoUrl, absl::Cord(retry));
  return status;
}

absl::Status ToStatus(const LimitReached& reached) {
  const std::string source =
      reached.source.empty() ? absl::StrCat("--", reached.limit) : reached.source;
  const std::string message = absl::StrCat(reached.message, " (", source, "=", reached.value, ")");
  absl::Status status = WithErrorInfo(
      absl::ResourceExhaustedError(message), reached.reason,
      {{"limit", std::string(reached.limit)}, {"value", absl::StrCat(reached.value)}});
  std::string violation, failure;
  AppendBytes(kSubject, reached.subject, &violation);
  AppendBytes(kDescription, message, &violation);
  AppendBytes(kViolations, violation, &failure);
  status.SetPayload(kQuotaFailureUrl, absl::Cord(failure));
  if (reached.retry_seconds == 0) return status;
  return WithRetryInfo(std::move(status), reached.retry_seconds);
}

std::string ErrorReason(const absl::Status& status) {
  const std::string info = ErrorInfoOf(status);
  absl::string_view rest = info;
  while (const std::optional<Field> field = TakeField(&rest)) {
    if (field->number == kReason) return std::string(field->bytes);
  }
  return {};
}

std::string ErrorMetadataValue(const absl::Status& status, absl::string_view key) {
  const std::string info = ErrorInfoOf(status);
  absl::string_view rest = info;
  while (const std::optional<Field> field = TakeField(&rest)) {
    if (field->number != kMetadata) continue;
    absl::string_view entry = field->bytes, name, value;
    while (const std::optional<Field> part = TakeField(&entry)) {
      if (part->number == kMapKey) name = part->bytes;
      if (part->number == kMapValue) value = part->bytes;
    }
    if (name == key) return std::string(value);
  }
  return {};
}

absl::Status WithPrefix(const absl::Status& status, absl::string_view prefix) {
  return WithMessage(status, absl::StrCat(prefix, status.message()));
}

absl::Status WithSuffix(const absl::Status& status, absl::string_view suffix) {
  return WithMessage(status, absl::StrCat(status.message(), suffix));
}

std::string EncodeDetails(const absl::Status& status, absl::string_view message) {
  std::string details;
  status.ForEachPayload([&details](absl::string_view url, const absl::Cord& payload) {
    if (!absl::ConsumePrefix(&url, kTypePrefix)) return;
    std::string any;
    AppendBytes(kAnyTypeUrl, absl::StrCat(kTypePrefix, url), &any);
    AppendBytes(kAnyValue, std::string(payload), &any);
    AppendBytes(kStatusDetails, any, &details);
  });
  if (details.empty()) return {};
  std::string encoded;
  AppendNumber(kStatusCode, static_cast<uint64_t>(status.code()), &encoded);
  AppendBytes(kStatusMessage, message, &encoded);
  return encoded + details;
}

void DecodeDetails(absl::string_view details, absl::Status* status) {
  while (const std::optional<Field> field = TakeField(&details)) {
    if (field->number != kStatusDetails) continue;
    absl::string_view any = field->bytes, url, value;
    while (const std::optional<Field> part = TakeField(&any)) {
      if (part->number == kAnyTypeUrl) url = part->bytes;
      if (part->number == kAnyValue) value = part->bytes;
    }
    if (url.substr(0, kTypePrefix.size()) == kTypePrefix) {
      status->SetPayload(url, absl::Cord(value));
    }
  }
}

absl::Status StatusFromCode(int code, absl::string_view message, absl::string_view details) {
  if (code == 0) return absl::OkStatus();
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  absl::Status status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      message);
  DecodeDetails(details, &status);
  return status;
}

}  // namespace tensord
