// What a status says to programs, beside its message for people: google.rpc.ErrorInfo, QuotaFailure
// and RetryInfo, kept as payloads of the status under their type's URL, and carried by gRPC as
// google.rpc.Status ("grpc-status-details-bin"). Encoded by hand: generated code of these
// well-known files in a library would clash with that of whoever links it.
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

// `status` with an ErrorInfo of domain "tensord". `reason` is stable, in UPPER_SNAKE_CASE.
absl::Status WithErrorInfo(absl::Status status, absl::string_view reason,
                           const ErrorMetadata& metadata = {});

// `status` with a RetryInfo: when it may be worth another try.
absl::Status WithRetryInfo(absl::Status status, int64_t seconds);

// A limit that is reached. RESOURCE_EXHAUSTED with all three.
struct LimitReached {
  absl::string_view reason;   // "SESSION_BYTES_EXCEEDED"
  absl::string_view subject;  // whose limit: "session", "principal", "server"
  absl::string_view limit;    // the flag that sets it: "max-bytes-per-session"
  int64_t value;              // what it is set to
  std::string message;        // for people; the flag and its value are added to it
  int64_t retry_seconds = 1;  // when it may be worth another try; 0: never
};
absl::Status ToStatus(const LimitReached& reached);

// The reason of a status' ErrorInfo, and a value of its metadata; empty where there is none.
std::string ErrorReason(const absl::Status& status);
std::string ErrorMetadataValue(const absl::Status& status, absl::string_view key);

// The same code and payloads, and `prefix` before the message.
absl::Status WithPrefix(const absl::Status& status, absl::string_view prefix);

// The status as google.rpc.Status; empty where it has none of these payloads.
std::string EncodeDetails(const absl::Status& status, absl::string_view message);
// Adds the payloads that a google.rpc.Status carries to `status`; bytes that are none change
// nothing.
void DecodeDetails(absl::string_view details, absl::Status* status);

}  // namespace tensord
