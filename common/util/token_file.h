// Bearer tokens, and the file that maps them to principals.
//
// The file has a line for each token:
//
//   alice sha256:6d3b…  expires=2027-01-31T00:00:00Z weight=4   # a comment
//   root  sha256:90af…  admin
//
// The parts of a line:
// - the name: 1 to 64 letters, digits and "._@+-"
// - the SHA-256 of the token, in 64 hex digits
// - optional: when the token expires, as RFC 3339 or as seconds since 1970
// - optional: the weight for fair scheduling, 1 to 1000; the default is 1
// - optional: limits of kPrincipalLimits, such as max-bytes=4GiB or max-sessions=8. They replace
//   the values of the server's flags
// - optional: the word "admin". A caller with this token may list and close the sessions of all
//   principals. Other tokens of the same name give no such right.
// Empty lines and text after a # are ignored. Several lines may have one name, so a token can be
// replaced without an interruption. The weight and the limits belong to the name: one line sets
// them for all lines of the name, and two lines must not differ.
//
// A token has 32 random bytes, so it can't be guessed and a fast hash is enough. Slow hashes are
// for passwords.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tensord/common/util/principal_limits.h"

namespace tensord {

using TokenHash = std::array<uint8_t, 32>;

// Returns a new token from the system's random source.
std::string NewToken();

TokenHash HashToken(absl::string_view token);

inline constexpr int kMaxWeight = 1000;

// Returns a line of the file, without its newline. `limits` has limits as in the file, separated by
// spaces. If the name, the weight or a limit is invalid, returns INVALID_ARGUMENT.
absl::StatusOr<std::string> TokenLine(absl::string_view name, const TokenHash& hash,
                                      absl::Time expires, int weight = 1, bool admin = false,
                                      absl::string_view limits = "");

// Parses an expiry time as in the file: RFC 3339 with a time zone, or seconds since 1970. If `text`
// is malformed, returns INVALID_ARGUMENT.
absl::StatusOr<absl::Time> ParseTokenEnd(absl::string_view text);

// Parses a weight as in the file. If it isn't from 1 to kMaxWeight, returns INVALID_ARGUMENT.
absl::StatusOr<int> ParseWeight(absl::string_view text);

// A parsed token file. Immutable.
class TokenFile {
 public:
  struct Token {
    std::string name;
    absl::Time expires = absl::InfiniteFuture();
    int weight = 1;
    PrincipalLimits limits;
    bool admin = false;
  };

  // If a line is malformed, returns INVALID_ARGUMENT with the line's number. The message contains
  // no text of the file.
  static absl::StatusOr<TokenFile> Parse(absl::string_view text);

  // Returns nullptr if there is no such token. The duration of the lookup doesn't help an attacker:
  // hashes are compared in constant time, and the attacker can't choose parts of a hash.
  const Token* Find(const TokenHash& hash) const;

  size_t size() const { return tokens_.size(); }

 private:
  // Compares in constant time.
  struct SameHash {
    bool operator()(const TokenHash& a, const TokenHash& b) const;
  };

  // The settings that all lines of a name share.
  struct Settings {
    std::optional<int> weight;
    PrincipalLimits limits;
  };
  using SettingsByName = absl::flat_hash_map<std::string, Settings>;

  absl::Status AddLine(absl::string_view line, SettingsByName* settings);

  absl::flat_hash_map<TokenHash, Token, absl::Hash<TokenHash>, SameHash> tokens_;
};

}  // namespace tensord
