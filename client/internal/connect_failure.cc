#include "tensord/client/internal/connect_failure.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace tensord::internal {
namespace {

template <size_t kSize>
bool ContainsAny(absl::string_view message, const absl::string_view (&parts)[kSize]) {
  return std::any_of(std::begin(parts), std::end(parts),
                     [&](absl::string_view part) { return absl::StrContains(message, part); });
}

// Returns the system's message, which is the last part: "Domain name not found".
absl::string_view Cause(absl::string_view message) {
  const size_t colon = message.rfind(": ");
  return colon == absl::string_view::npos ? message : message.substr(colon + 2);
}

// Describes a kFinal failure. OpenSSL and BoringSSL spell their errors differently.
std::string DescribeFinalFailure(absl::string_view message) {
  static constexpr absl::string_view kNotTls[] = {"wrong version number", "WRONG_VERSION_NUMBER"};
  if (absl::StrContains(message, "Connection refused")) {
    return "no server listens there: start one, or check the host and the port; last error: "
           "Connection refused";
  }
  if (absl::StrContains(message, "not in peer certificate")) {
    return "the server's certificate isn't valid for this host: use a host name of the "
           "certificate, or give that name (TENSORD_TLS_SERVER_NAME, or tensorctl "
           "--tls-server-name)";
  }
  if (ContainsAny(message, kNotTls)) {
    return "the server doesn't use TLS: connect without it (unset TENSORD_TLS and TENSORD_TLS_CA, "
           "or leave out tensorctl --tls and --tls-ca)";
  }
  return absl::StrCat(
      "the TLS handshake failed: has the server's certificate expired, or has no authority that "
      "this client trusts signed it (TENSORD_TLS_CA, or tensorctl --tls-ca)? (",
      Cause(message), ")");
}

// Returns the first of the variables that is set and not empty, or null.
template <size_t kSize>
const char* FirstSet(const char* const (&variables)[kSize]) {
  for (const char* const variable : variables) {
    const char* const value = std::getenv(variable);
    if (value != nullptr && *value != '\0') return variable;
  }
  return nullptr;
}

}  // namespace

ConnectFailure ClassifyConnectFailure(absl::string_view message) {
  static constexpr absl::string_view kFinal[] = {"Connection refused", "SSL_ERROR_SSL",
                                                 "not in peer certificate"};
  static constexpr absl::string_view kClosed[] = {"Socket closed", "Connection reset by peer",
                                                  "Broken pipe", "Failed parsing HTTP/2"};
  if (ContainsAny(message, kFinal)) return ConnectFailure::kFinal;
  if (absl::StrContains(message, "DNS resolution failed")) return ConnectFailure::kUnresolved;
  // gRPC reports "failed to connect" until the other end has sent its HTTP/2 settings.
  if (!absl::StrContains(message, "failed to connect")) return ConnectFailure::kBroken;
  return ContainsAny(message, kClosed) ? ConnectFailure::kClosed : ConnectFailure::kUnreachable;
}

std::string DescribeConnectFailure(absl::string_view message, bool uses_tls) {
  switch (ClassifyConnectFailure(message)) {
    case ConnectFailure::kUnresolved:
      return absl::StrCat("the host's name can't be resolved (", Cause(message), ")");
    case ConnectFailure::kClosed:
      return absl::StrCat(
          "the other end closes the connection or doesn't use HTTP/2: ",
          uses_tls ? "does it require a client certificate (TENSORD_TLS_CERT, or tensorctl "
                     "--tls-cert)"
                   : "does it require TLS (TENSORD_TLS_CA, or tensorctl --tls-ca)",
          ", or is it not a tensord server?");
    case ConnectFailure::kFinal:
      return DescribeFinalFailure(message);
    default:
      // gRPC: "connection attempt timed out before receiving SETTINGS frame".
      if (absl::StrContains(message, "before receiving SETTINGS")) {
        return "the other end accepts connections and doesn't answer: is it a tensord server?";
      }
      return std::string(message);
  }
}

std::string DescribeProxy(absl::string_view address) {
  static constexpr const char* kProxies[] = {"grpc_proxy", "https_proxy", "http_proxy"};
  static constexpr const char* kExceptions[] = {"no_grpc_proxy", "no_proxy"};
  const char* const proxy = FirstSet(kProxies);
  if (proxy == nullptr || absl::StartsWith(address, "unix:")) return "";
  absl::string_view host = address.substr(0, address.rfind(':'));
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  const char* const exceptions = FirstSet(kExceptions);
  if (exceptions != nullptr) {
    for (const absl::string_view suffix :
         absl::StrSplit(std::getenv(exceptions), ',', absl::SkipWhitespace())) {
      if (absl::EndsWithIgnoreCase(host, absl::StripAsciiWhitespace(suffix))) return "";
    }
  }
  return absl::StrCat("; the environment variable ", proxy,
                      " sends the connection through a proxy: to connect without it, ",
                      exceptions == nullptr ? absl::StrCat("set no_proxy=", host)
                                            : absl::StrCat("add ", host, " to ", exceptions));
}

}  // namespace tensord::internal
