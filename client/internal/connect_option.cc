#include "tensord/client/internal/connect_option.h"

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

namespace tensord::internal {
namespace {

// Each sets one field. Returns false if the text isn't of the field's type.
bool Set(absl::string_view text, std::string* field) {
  *field = std::string(text);
  return true;
}
bool Set(absl::string_view text, absl::Duration* field) {
  double seconds = 0;
  if (!absl::SimpleAtod(text, &seconds) || !std::isfinite(seconds)) return false;
  *field = absl::Seconds(seconds);
  return true;
}
bool Set(absl::string_view text, bool* field) { return absl::SimpleAtob(text, field); }
template <typename Integer>
bool Set(absl::string_view text, Integer* field) {
  return absl::SimpleAtoi(text, field);
}

template <auto kField>
bool SetField(absl::string_view text, ConnectOptions* options) {
  return Set(text, &(options->*kField));
}
template <auto kField>
bool SetTlsField(absl::string_view text, ConnectOptions* options) {
  return Set(text, &(options->tls.*kField));
}

struct Option {
  absl::string_view name;
  absl::string_view type;
  bool (*set)(absl::string_view text, ConnectOptions* options);
};
using Options = ConnectOptions;
constexpr Option kOptions[] = {
    {"timeout", "a number of seconds", SetField<&Options::connect_timeout>},
    {"lease", "a number of seconds", SetField<&Options::lease>},
    {"reconnect_timeout", "a number of seconds", SetField<&Options::reconnect_timeout>},
    {"keepalive_interval", "a number of seconds", SetField<&Options::keepalive_interval>},
    {"keepalive_timeout", "a number of seconds", SetField<&Options::keepalive_timeout>},
    {"spin", "a number of seconds", SetField<&Options::spin>},
    {"client_name", "a text", SetField<&Options::client_name>},
    {"token", "a text", SetField<&Options::token>},
    {"token_file", "a path", SetField<&Options::token_file>},
    {"tls", "true or false", SetTlsField<&TlsOptions::use>},
    {"tls_ca", "a path", SetTlsField<&TlsOptions::ca_file>},
    {"tls_cert", "a path", SetTlsField<&TlsOptions::cert_file>},
    {"tls_key", "a path", SetTlsField<&TlsOptions::key_file>},
    {"tls_server_name", "a text", SetTlsField<&TlsOptions::server_name>},
    {"shared_memory", "true or false", SetField<&Options::shared_memory>},
    {"max_pending_commands", "an integer", SetField<&Options::max_pending_commands>},
    {"max_pending_bytes", "an integer", SetField<&Options::max_pending_bytes>},
    {"max_upload_connections", "an integer", SetField<&Options::max_upload_connections>},
};

}  // namespace

absl::Status SetConnectOption(absl::string_view name, absl::string_view text,
                              ConnectOptions* options) {
  for (const Option& option : kOptions) {
    if (option.name != name) continue;
    if (option.set(text, options)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("connect: ", name, " must be ", option.type, ", and is '", text, "'"));
  }
  std::vector<absl::string_view> names;
  for (const Option& option : kOptions) names.push_back(option.name);
  return absl::NotFoundError(absl::StrCat("connect: there is no option '", name,
                                          "'; the options are ", absl::StrJoin(names, ", ")));
}

std::string AddressesFromEnvironment() {
  for (const char* name : {"TENSORD_SERVERS", "TENSORD_SERVER"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return "";
}

}  // namespace tensord::internal
