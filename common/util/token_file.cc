#include "tensord/common/util/token_file.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tensord/common/util/byte_size.h"
#include "tensord/common/util/hex.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

constexpr size_t kMaxNameBytes = 64;
constexpr size_t kMaxTokens = 1 << 16;
constexpr char kHashPrefix[] = "sha256:";
constexpr char kExpiresPrefix[] = "expires=";
constexpr char kWeightPrefix[] = "weight=";
constexpr char kAdmin[] = "admin";
// Lets secret scanners recognize a token.
constexpr char kTokenPrefix[] = "tensord_";

bool IsName(absl::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes) return false;
  for (const char c : name) {
    if (!absl::ascii_isalnum(c) && !absl::StrContains("._@+-", absl::string_view(&c, 1))) {
      return false;
    }
  }
  return true;
}

absl::Status InvalidWeightError() {
  return absl::InvalidArgumentError(
      absl::StrCat("a weight is a whole number from 1 to ", kMaxWeight));
}

absl::StatusOr<TokenHash> ParseHash(absl::string_view text) {
  TokenHash hash;
  const bool has_prefix = absl::ConsumePrefix(&text, kHashPrefix);
  bool good = has_prefix && text.size() == 2 * hash.size();
  for (const char c : text) good = good && absl::ascii_isxdigit(c);
  if (!good) {
    return absl::InvalidArgumentError("the second word must be sha256: and 64 hex digits");
  }
  const std::string bytes = HexToBytes(text);
  std::copy(bytes.begin(), bytes.end(), hash.begin());
  return hash;
}

// Parses a limit, such as "max-bytes=4GiB", and adds it to `limits`. If the word doesn't begin with
// the name of a limit and "=", returns false. If the value is invalid, or `limits` already has the
// limit, returns INVALID_ARGUMENT.
absl::StatusOr<bool> ParseLimit(absl::string_view word, PrincipalLimits* limits) {
  const size_t equals = word.find('=');
  if (equals == word.npos) return false;
  for (size_t i = 0; i < kPrincipalLimits.size(); ++i) {
    const PrincipalLimitInfo& info = kPrincipalLimits[i];
    if (word.substr(0, equals) != info.name) continue;
    const absl::string_view text = word.substr(equals + 1);
    absl::StatusOr<int64_t> value = ParseByteSize(text);
    const bool is_count = std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
    const bool rounded_to_0 = value.ok() && *value == 0 && text != "0";
    if (!value.ok() || *value < info.min || rounded_to_0 || (!info.is_size && !is_count)) {
      return absl::InvalidArgumentError(
          absl::StrCat(info.name, " must be ",
                       info.is_size ? "a number of bytes, such as 4GiB," : "a whole number",
                       " of at least ", info.min));
    }
    if ((*limits)[i].has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(info.name, " is set twice; remove one"));
    }
    (*limits)[i] = *value;
    return true;
  }
  return false;
}

std::string LimitNames() {
  return absl::StrJoin(kPrincipalLimits, ", ", [](std::string* out, const auto& info) {
    absl::StrAppend(out, info.name, "=", info.is_size ? "SIZE" : "COUNT");
  });
}

// If `value` is set and `*common` isn't, sets `*common` to `value`. Returns false if both were set
// and differ.
template <typename T>
bool Merge(const std::optional<T>& value, std::optional<T>* common) {
  if (!value.has_value()) return true;
  return std::exchange(*common, common->value_or(*value)).value_or(*value) == *value;
}

}  // namespace

std::string NewToken() {
  unsigned char bytes[32];
  if (RAND_bytes(bytes, sizeof(bytes)) != 1) std::abort();  // the system has no random source
  return absl::StrCat(kTokenPrefix, absl::BytesToHexString(absl::string_view(
                                        reinterpret_cast<const char*>(bytes), sizeof(bytes))));
}

TokenHash HashToken(absl::string_view token) {
  TokenHash hash;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), hash.data());
  return hash;
}

absl::StatusOr<std::string> TokenLine(absl::string_view name, const TokenHash& hash,
                                      absl::Time expires, int weight, bool admin,
                                      absl::string_view limits) {
  if (!IsName(name)) {
    return absl::InvalidArgumentError(absl::StrCat("a name has 1 to ", kMaxNameBytes,
                                                   " characters: letters, digits and \"._@+-\""));
  }
  if (weight < 1 || weight > kMaxWeight) return InvalidWeightError();
  const absl::string_view bytes(reinterpret_cast<const char*>(hash.data()), hash.size());
  std::string line = absl::StrCat(name, " ", kHashPrefix, absl::BytesToHexString(bytes));
  if (expires != absl::InfiniteFuture()) {
    absl::StrAppend(&line, " ", kExpiresPrefix,
                    absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", expires, absl::UTCTimeZone()));
  }
  if (weight != 1) absl::StrAppend(&line, " ", kWeightPrefix, weight);
  PrincipalLimits parsed;
  for (const absl::string_view word :
       absl::StrSplit(limits, absl::ByAnyChar(" \t\r\n"), absl::SkipEmpty())) {
    TENSORD_ASSIGN_OR_RETURN(const bool is_limit, ParseLimit(word, &parsed));
    if (!is_limit) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", word, "\" is not a limit; the limits are ", LimitNames()));
    }
    absl::StrAppend(&line, " ", word);
  }
  if (admin) absl::StrAppend(&line, " ", kAdmin);
  return line;
}

absl::StatusOr<absl::Time> ParseTokenEnd(absl::string_view text) {
  int64_t seconds = 0;
  if (!text.empty() && absl::ascii_isdigit(text[0]) && absl::SimpleAtoi(text, &seconds)) {
    return absl::FromUnixSeconds(seconds);
  }
  absl::Time time;
  // RFC3339_full requires a time zone. ParseTime also accepts "infinite-future", so check for a
  // digit.
  const bool finite = !text.empty() && absl::ascii_isdigit(text[0]);
  if (finite && absl::ParseTime(absl::RFC3339_full, text, &time, nullptr)) return time;
  return absl::InvalidArgumentError(
      "an expiry is a time such as 2027-01-31T00:00:00Z, or seconds since 1970");
}

absl::StatusOr<int> ParseWeight(absl::string_view text) {
  int weight = 0;
  const bool digits = !text.empty() && absl::ascii_isdigit(text[0]);  // SimpleAtoi accepts more
  if (digits && absl::SimpleAtoi(text, &weight) && weight >= 1 && weight <= kMaxWeight) {
    return weight;
  }
  return InvalidWeightError();
}

absl::StatusOr<TokenFile> TokenFile::Parse(absl::string_view text) {
  TokenFile file;
  SettingsByName settings;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::Status added = file.AddLine(line, &settings);
    if (!added.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", added.message()));
    }
  }
  for (auto& [hash, token] : file.tokens_) {
    const Settings& common = settings[token.name];
    token.weight = common.weight.value_or(1);
    token.limits = common.limits;
  }
  return file;
}

absl::Status TokenFile::AddLine(absl::string_view line, SettingsByName* settings) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(line.substr(0, line.find('#')), absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
  if (words.empty()) return absl::OkStatus();
  if (!IsName(words[0])) {
    return absl::InvalidArgumentError(
        "the first word must be a name: letters, digits and \"._@+-\", at most 64");
  }
  if (words.size() < 2) return absl::InvalidArgumentError("the line has a name but no hash");
  TENSORD_ASSIGN_OR_RETURN(const TokenHash hash, ParseHash(words[1]));
  Token token{.name = std::string(words[0])};
  std::optional<absl::Time> expires;
  Settings own;
  for (size_t i = 2; i < words.size(); ++i) {
    absl::string_view word = words[i];
    if (!expires.has_value() && absl::ConsumePrefix(&word, kExpiresPrefix)) {
      TENSORD_ASSIGN_OR_RETURN(expires, ParseTokenEnd(word));
    } else if (!own.weight.has_value() && absl::ConsumePrefix(&word, kWeightPrefix)) {
      TENSORD_ASSIGN_OR_RETURN(own.weight, ParseWeight(word));
    } else if (!token.admin && word == kAdmin) {
      token.admin = true;
    } else {
      TENSORD_ASSIGN_OR_RETURN(const bool is_limit, ParseLimit(word, &own.limits));
      if (is_limit) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("after the hash, write only expires=TIME, weight=N, admin and limits (",
                       LimitNames(), "), each at most once; remove or correct the rest"));
    }
  }
  token.expires = expires.value_or(token.expires);
  Settings& common = (*settings)[token.name];
  if (!Merge(own.weight, &common.weight)) {
    return absl::InvalidArgumentError("an earlier line gives the same name another weight");
  }
  for (size_t i = 0; i < kPrincipalLimits.size(); ++i) {
    if (Merge(own.limits[i], &common.limits[i])) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("an earlier line gives the same name another ", kPrincipalLimits[i].name));
  }
  if (!tokens_.emplace(hash, std::move(token)).second) {
    return absl::InvalidArgumentError("an earlier line has the same token");
  }
  if (tokens_.size() > kMaxTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("the file has more than ", kMaxTokens, " tokens"));
  }
  return absl::OkStatus();
}

bool TokenFile::SameHash::operator()(const TokenHash& a, const TokenHash& b) const {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

const TokenFile::Token* TokenFile::Find(const TokenHash& hash) const {
  const auto it = tokens_.find(hash);
  return it == tokens_.end() ? nullptr : &it->second;
}

}  // namespace tensord
