// Fuzzes token files. The parser must accept a file or name the wrong line. A line that TokenLine()
// has written must parse to the same values.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/util/token_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tensord;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto file = TokenFile::Parse(text);
  if (!file.ok() && !absl::StartsWith(file.status().message(), "line ")) std::abort();

  const TokenHash hash = HashToken(text);
  const auto end = ParseTokenEnd(text);
  const auto line = TokenLine(text.substr(0, 65), hash, end.ok() ? *end : absl::InfiniteFuture());
  if (!line.ok()) return 0;
  // Years beyond four digits have no form in RFC 3339.
  if (end.ok() && (*end < absl::UnixEpoch() || *end > absl::FromUnixSeconds(253402300799)))
    return 0;
  const auto again = TokenFile::Parse(absl::StrCat(*line, "\n"));
  if (!again.ok() || again->size() != 1) std::abort();
  const TokenFile::Token* token = again->Find(hash);
  if (token == nullptr || token->name != text.substr(0, 65)) std::abort();
  if (end.ok() && token->expires > *end) std::abort();
  return 0;
}
