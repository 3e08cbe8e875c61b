#include "tensord/common/util/address.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace tensord {

bool IsLocalAddress(absl::string_view address) {
  if (absl::StartsWith(address, "unix:")) return true;
  const absl::string_view host = address.substr(0, address.rfind(':'));
  if (host == "localhost" || host == "[::1]") return true;
  // Matches 127.0.0.0/8 by four numbers, because 127.example.com isn't local.
  const std::vector<absl::string_view> parts = absl::StrSplit(host, '.');
  if (parts.size() != 4 || parts[0] != "127") return false;
  for (absl::string_view part : parts) {
    int number = 0;
    if (!absl::SimpleAtoi(part, &number) || number < 0 || number > 255) return false;
  }
  return true;
}

}  // namespace tensord
