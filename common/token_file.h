// Bearer tokens, and the file in which a server finds who they stand for.
//
// A line for each token:
//
//   alice sha256:6d3b…  expires=2027-01-31T00:00:00Z weight=4   # a comment
//
// A name of 1 to 64 letters, digits and "._@+-"; the SHA-256 of the token in 64 hex digits; where
// it isn't for ever, the end as RFC 3339 or as seconds since 1970; where it isn't 1, the weight by
// which busy devices are shared out, to 1000. Empty lines and what follows a # are passed over.
// Several lines may have one name: a token replaces another without a pause. The weight is the
// name's: one line says it for all, and no two differ.
//
// A token is 32 random bytes, which nobody finds by trying, so that a fast hash does: slow ones are
// for what people think up.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tensord {

using TokenHash = std::array<uint8_t, 32>;

// A token that nobody has had before, from the system's random source.
std::string NewToken();

// No token is longer; longer ones needn't be hashed.
inline constexpr size_t kMaxTokenBytes = 256;

TokenHash HashToken(absl::string_view token);

inline constexpr int kMaxWeight = 1000;

// A line of the file, without its end. INVALID_ARGUMENT for a name or a weight that the file can't
// have.
absl::StatusOr<std::string> TokenLine(absl::string_view name, const TokenHash& hash,
                                      absl::Time expires, int weight = 1);

// An end as the file says it: RFC 3339 or seconds since 1970.
absl::StatusOr<absl::Time> ParseTokenEnd(absl::string_view text);

// A weight as the file says it.
absl::StatusOr<int> ParseWeight(absl::string_view text);

// What a token file says. Immutable.
class TokenFile {
 public:
  struct Token {
    std::string name;
    absl::Time expires = absl::InfiniteFuture();
    int weight = 1;
  };

  // The error names the line, and repeats nothing of it.
  static absl::StatusOr<TokenFile> Parse(absl::string_view text);

  // Null where there is no such token. What the time it takes might tell is of hashes, whose parts
  // a caller can't choose, and which aren't secret; they are compared in constant time besides.
  const Token* Find(const TokenHash& hash) const;

  size_t size() const { return tokens_.size(); }

 private:
  // In constant time.
  struct SameHash {
    bool operator()(const TokenHash& a, const TokenHash& b) const;
  };

  using Weights = absl::flat_hash_map<std::string, int>;  // by name, of those that have one

  absl::Status AddLine(absl::string_view line, Weights* weights);

  absl::flat_hash_map<TokenHash, Token, absl::Hash<TokenHash>, SameHash> tokens_;
};

}  // namespace tensord
