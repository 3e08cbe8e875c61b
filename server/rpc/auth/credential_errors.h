// The errors of authentication, with machine-readable reasons.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tensord/common/status_details.h"

namespace tensord::server {

inline constexpr absl::string_view kCredentialsMissing = "CREDENTIALS_MISSING";
inline constexpr absl::string_view kCredentialsInvalid = "CREDENTIALS_INVALID";
inline constexpr absl::string_view kCredentialsExpired = "CREDENTIALS_EXPIRED";

// Returns UNAUTHENTICATED with an ErrorInfo.
inline absl::Status Unauthenticated(absl::string_view reason, absl::string_view message) {
  return WithErrorInfo(absl::UnauthenticatedError(message), reason);
}

}  // namespace tensord::server
