#include "tensord/client/internal/credentials.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tensord/common/util/address.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/common/util/token.h"

namespace tensord::internal {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string OptionOrVariable(const std::string& option, const char* variable) {
  return option.empty() ? Environment(variable) : option;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  if (in) out << in.rdbuf();
  std::string text = out.str();
  if (text.empty()) {
    return absl::NotFoundError(absl::StrCat(path, " can't be read, or is empty"));
  }
  return text;
}

// Reads a PEM file. If it doesn't contain `word`, returns INVALID_ARGUMENT.
absl::StatusOr<std::string> ReadPem(const std::string& path, absl::string_view word) {
  TENSORD_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  if (absl::StrContains(text, word)) return text;
  return absl::InvalidArgumentError(absl::StrCat(path, " contains no ", word, " in PEM"));
}

TlsOptions WithEnvironment(TlsOptions tls) {
  tls.ca_file = OptionOrVariable(tls.ca_file, "TENSORD_TLS_CA");
  tls.cert_file = OptionOrVariable(tls.cert_file, "TENSORD_TLS_CERT");
  tls.key_file = OptionOrVariable(tls.key_file, "TENSORD_TLS_KEY");
  tls.server_name = OptionOrVariable(tls.server_name, "TENSORD_TLS_SERVER_NAME");
  tls.use = tls.use || Environment("TENSORD_TLS") == "1" || !tls.ca_file.empty() ||
            !tls.cert_file.empty();
  return tls;
}

absl::Status CheckToken(absl::string_view token) {
  if (IsToken(token)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the given token isn't valid: a token is one word of at most ", kMaxTokenBytes,
                   " characters"));
}

absl::StatusOr<std::string> FindToken(const ConnectOptions& options) {
  if (!options.token.empty()) return options.token;
  const std::string path = OptionOrVariable(options.token_file, "TENSORD_TOKEN_FILE");
  if (path.empty()) return "";
  TENSORD_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return std::string(absl::StripAsciiWhitespace(text));
}

}  // namespace

absl::StatusOr<Credentials> Credentials::Load(const std::string& address,
                                              const ConnectOptions& options) {
  Credentials credentials;
  const TlsOptions tls = WithEnvironment(options.tls);
  // The server doesn't use TLS on Unix sockets.
  credentials.use_tls_ = tls.use && !absl::StartsWith(address, "unix:");
  if (credentials.use_tls_) {
    if (tls.cert_file.empty() != tls.key_file.empty()) {
      return absl::InvalidArgumentError(
          "a certificate needs its key, and a key its certificate: give both files "
          "(TENSORD_TLS_CERT and TENSORD_TLS_KEY, or tensorctl --tls-cert and --tls-key)");
    }
    if (!tls.ca_file.empty()) {
      TENSORD_ASSIGN_OR_RETURN(credentials.tls_.pem_root_certs,
                               ReadPem(tls.ca_file, "CERTIFICATE"));
    }
    if (!tls.cert_file.empty()) {
      TENSORD_ASSIGN_OR_RETURN(credentials.tls_.pem_cert_chain,
                               ReadPem(tls.cert_file, "CERTIFICATE"));
      TENSORD_ASSIGN_OR_RETURN(credentials.tls_.pem_private_key,
                               ReadPem(tls.key_file, "PRIVATE KEY"));
    }
    credentials.server_name_ = tls.server_name;
  }
  TENSORD_ASSIGN_OR_RETURN(const std::string token, FindToken(options));
  if (token.empty()) return credentials;
  TENSORD_RETURN_IF_ERROR(CheckToken(token));
  if (!credentials.use_tls_ && !IsLocalAddress(address)) {
    return absl::FailedPreconditionError(
        absl::StrCat("a token must not be sent unencrypted over the network, and ", address,
                     " isn't this machine: use TLS (TENSORD_TLS_CA, or tensorctl --tls-ca)"));
  }
  credentials.authorization_ = absl::StrCat("Bearer ", token);
  return credentials;
}

std::shared_ptr<grpc::ChannelCredentials> Credentials::channel() const {
  return use_tls_ ? grpc::SslCredentials(tls_) : grpc::InsecureChannelCredentials();
}

void Credentials::AddTo(grpc::ChannelArguments* arguments) const {
  if (use_tls_ && !server_name_.empty()) arguments->SetSslTargetNameOverride(server_name_);
}

}  // namespace tensord::internal
