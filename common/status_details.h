// The machine-readable details of a status: google.rpc.ErrorInfo, QuotaFailure and RetryInfo. They
// are payloads of the status under their type's URL. gRPC transfers them as google.rpc.Status
// ("grpc-status-details-bin"). They are encoded by hand, because generated code for these
// well-known files in a library would clash with that of a program that links the library.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tensord {

inline constexpr absl::string_view kErrorInfoUrl = "type.googleapis.com/google.rpc.ErrorInfo";
inline constexpr absl::string_view kQuotaFailureUrl = "type.googleapis.com/google.rpc.QuotaFailure";
inline constexpr absl::string_view kRetryInfoUrl = "type.googleapis.com/google.rpc.RetryInfo";

using ErrorMetadata = std::vector<std::pair<std::string, std::string>>;

// Returns `status` with an ErrorInfo of domain "tensord". `reason` is stable, in UPPER_SNAKE_CASE.
absl::Status WithErrorInfo(absl::Status status, absl::string_view reason,
                           const ErrorMetadata& metadata = {});

// Returns `status` with a RetryInfo: the time after which a retry may succeed.
absl::Status WithRetryInfo(absl::Status status, int64_t seconds);

// A limit that is exceeded. ToStatus() returns RESOURCE_EXHAUSTED with an ErrorInfo, a QuotaFailure
// and, unless retry_seconds is 0, a RetryInfo.
struct LimitReached {
  absl::string_view reason;   // "SESSION_BYTES_EXCEEDED"
  absl::string_view subject;  // the owner of the limit: "session", "principal", "server"
  absl::string_view limit;    // the flag that sets it: "max-bytes-per-session"
  int64_t value;              // its value
  std::string message;        // for the user; ToStatus() appends the limit's source
  int64_t retry_seconds = 1;  // a retry may succeed after this time; 0: never
  std::string source = {};    // "the server's token file: alice, max-bytes"; empty: the flag
};
absl::Status ToStatus(const LimitReached& reached);

// Returns the code and the message, "NOT_FOUND: no device cuda:7 …", for people. Unlike
// status.ToString() and `<<`, leaves out the payloads, which are for programs.
inline std::string ErrorText(const absl::Status& status) {
  return status.ToString(absl::StatusToStringMode::kWithNoExtraData);
}

// Return the reason of the status's ErrorInfo, and one value of its metadata. If there is none,
// return "".
std::string ErrorReason(const absl::Status& status);
std::string ErrorMetadataValue(const absl::Status& status, absl::string_view key);

// Return a status with the same code and payloads, and a text before or after the message.
absl::Status WithPrefix(const absl::Status& status, absl::string_view prefix);
absl::Status WithSuffix(const absl::Status& status, absl::string_view suffix);

// Returns the status, with `message` in place of its own message, as an encoded google.rpc.Status.
// Returns "" if the status has no google.rpc payload.
std::string EncodeDetails(const absl::Status& status, absl::string_view message);
// Adds the payloads of an encoded google.rpc.Status to `status`. Stops at the first malformed
// field: payloads before it are added.
void DecodeDetails(absl::string_view details, absl::Status* status);

// Returns the status that another process sent: a google.rpc.Code, its message, and its details,
// which are an encoded google.rpc.Status or empty. If `code` isn't a google.rpc.Code, returns
// UNKNOWN.
absl::Status StatusFromCode(int code, absl::string_view message, absl::string_view details = "");

}  // namespace tensord
