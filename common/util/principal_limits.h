// The limits that the token file may set for a caller. They replace the values of the server's
// flags.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace tensord {

// What a caller may hold at once, over all its sessions.
enum class PrincipalLimit {
  kBytes,
  kSessions,
  kHandles,
  kHostBytes,
  kUploadBytes,
  kPublished,
  kTickets,
  kPulls,
  kGroupMembers,
  kConnections,
  kRequestBytes,
  kResponseBytes,
};

// The properties of a limit.
struct PrincipalLimitInfo {
  absl::string_view name;  // in the token file; the server's flag is --NAME-per-principal
  bool is_size;            // in bytes, such as 4GiB; otherwise a count
  int64_t min;             // the smallest value that is accepted
};

// Indexed by PrincipalLimit.
inline constexpr std::array<PrincipalLimitInfo, 12> kPrincipalLimits = {{
    {"max-bytes", true, 0},
    {"max-sessions", false, 0},
    {"max-handles", false, 0},
    {"max-host-bytes", true, 1 << 16},
    {"max-upload-bytes", true, 0},
    {"max-published", false, 0},
    {"max-tickets", false, 1},
    {"max-pulls", false, 1},
    {"max-group-members", false, 0},
    {"max-connections", false, 0},
    {"max-request-bytes", true, 32 << 20},
    {"max-response-bytes", true, 1 << 20},
}};

// The limits of one caller, indexed by PrincipalLimit. nullopt means that the token file doesn't
// set the limit. A value means the same as the flag's value: for most limits, 0 means no limit.
using PrincipalLimits = std::array<std::optional<int64_t>, kPrincipalLimits.size()>;

}  // namespace tensord
