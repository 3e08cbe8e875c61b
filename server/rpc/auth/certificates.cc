#include "tensord/server/rpc/auth/certificates.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/rpc/auth/credential_errors.h"

namespace tensord::server {
namespace {

constexpr std::streamsize kMaxFileBytes = 16 << 20;
constexpr size_t kMaxNameBytes = 256;
// The maximum number of verified chains in the cache.
constexpr size_t kMaxVerified = 4096;

template <typename T, void (*free)(T*)>
struct Free {
  void operator()(T* object) const { free(object); }
};
using Bio = std::unique_ptr<BIO, Free<BIO, BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Free<X509, X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY, EVP_PKEY_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, Free<X509_STORE_CTX, X509_STORE_CTX_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Free<GENERAL_NAMES, GENERAL_NAMES_free>>;

Bio Open(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

std::vector<Certificate> ReadCertificates(const std::string& pem) {
  std::vector<Certificate> certificates;
  const Bio bio = Open(pem);
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    certificates.emplace_back(certificate);
  }
  ERR_clear_error();  // the end of the text is reported as an error
  return certificates;
}

// Makes OpenSSL refuse a key with a password, instead of asking for the password on the terminal.
int NoPassword(char*, int, int, void*) { return -1; }

absl::Time ToTime(const ASN1_TIME* time) {
  std::tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTimeT(timegm(&parts));
}

absl::Status CheckPair(const TlsOptions& options, const std::string& chain_pem,
                       const std::string& key_pem) {
  const std::vector<Certificate> chain = ReadCertificates(chain_pem);
  if (chain.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(options.cert_file, " holds no certificate"));
  }
  const Bio bio = Open(key_pem);
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
  ERR_clear_error();
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.key_file, " holds no private key, or one with a password"));
  }
  const bool matches = X509_check_private_key(chain.front().get(), key.get()) == 1;
  ERR_clear_error();
  if (!matches) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the key in ", options.key_file, " isn't that of the certificate in ", options.cert_file));
  }
  const absl::Time end = ToTime(X509_get0_notAfter(chain.front().get()));
  if (end <= absl::Now()) {
    return absl::InvalidArgumentError(absl::StrCat("the certificate in ", options.cert_file,
                                                   " has expired at ",
                                                   absl::FormatTime(end, absl::UTCTimeZone())));
  }
  if (ToTime(X509_get0_notBefore(chain.front().get())) > absl::Now()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the certificate in ", options.cert_file, " isn't valid yet"));
  }
  return absl::OkStatus();
}

std::string ToString(const ASN1_STRING* text) {
  return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                     ASN1_STRING_length(text));
}

// Returns whether a name may be shown in messages and logs.
bool IsPrintable(const std::string& name) {
  const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::none_of(name.begin(), name.end(), control);
}

std::string AlternativeName(X509* certificate, int type) {
  const Names names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == type) return ToString(name->d.ia5);
  }
  return "";
}

std::string CommonName(X509* certificate) {
  X509_NAME* subject = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at < 0) return "";
  unsigned char* text = nullptr;
  const int size =
      ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
  if (size < 0) return "";
  std::string name(reinterpret_cast<char*>(text), size);
  OPENSSL_free(text);
  return name;
}

absl::StatusOr<std::string> NameOf(X509* certificate) {
  const std::pair<const char*, std::string> names[] = {
      {"uri:", AlternativeName(certificate, GEN_URI)},
      {"dns:", AlternativeName(certificate, GEN_DNS)},
      {"cn:", CommonName(certificate)}};
  for (const auto& [kind, name] : names) {
    if (IsPrintable(name)) return absl::StrCat(kind, name);
    if (!name.empty()) break;  // the certificate is malformed, so the other names aren't used
  }
  return Unauthenticated(
      kCredentialsInvalid,
      "the client certificate has no valid name: it needs a URI, a DNS name or a common name");
}

absl::StatusOr<std::shared_ptr<X509_STORE>> MakeStore(const std::string& path,
                                                      const std::string& pem) {
  std::shared_ptr<X509_STORE> store(X509_STORE_new(), X509_STORE_free);
  const std::vector<Certificate> authorities = ReadCertificates(pem);
  for (const Certificate& authority : authorities) {
    X509_STORE_add_cert(store.get(), authority.get());
  }
  if (authorities.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, " holds no certificate"));
  }
  return store;
}

}  // namespace

absl::StatusOr<std::string> ReadSecretFile(const std::string& path) {
  struct stat file = {};
  if (stat(path.c_str(), &file) == 0) {
    // Opening a pipe would block.
    if (!S_ISREG(file.st_mode)) {
      return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
    }
    if (file.st_size > kMaxFileBytes) {
      return absl::InvalidArgumentError(absl::StrCat(path, " is larger than 16 MiB"));
    }
  }
  std::ifstream in(path, std::ios::binary);
  std::string text(static_cast<size_t>(file.st_size), '\0');
  in.read(text.data(), file.st_size);
  if (!in || text.empty()) {
    return absl::NotFoundError(absl::StrCat(path, " can't be read, or is empty"));
  }
  return text;
}

absl::StatusOr<std::shared_ptr<const Certificates>> Certificates::Load(const TlsOptions& options) {
  std::shared_ptr<Certificates> loaded(new Certificates);
  TENSORD_ASSIGN_OR_RETURN(loaded->chain_pem_, ReadSecretFile(options.cert_file));
  TENSORD_ASSIGN_OR_RETURN(loaded->key_pem_, ReadSecretFile(options.key_file));
  TENSORD_RETURN_IF_ERROR(CheckPair(options, loaded->chain_pem_, loaded->key_pem_));
  if (!options.client_ca_file.empty()) {
    TENSORD_ASSIGN_OR_RETURN(loaded->client_ca_pem_, ReadSecretFile(options.client_ca_file));
    TENSORD_ASSIGN_OR_RETURN(loaded->client_authorities_,
                             MakeStore(options.client_ca_file, loaded->client_ca_pem_));
  }
  return std::shared_ptr<const Certificates>(std::move(loaded));
}

absl::StatusOr<Certificates::Client> Certificates::Verify(const std::string& chain_pem) const {
  absl::StatusOr<Client> client = absl::UnauthenticatedError("");
  {
    MutexLock lock(&mu_);
    const auto it = verified_.find(chain_pem);
    if (it != verified_.end()) client = it->second;
  }
  if (!client.ok()) {
    client = VerifyUncached(chain_pem);
    if (!client.ok()) return client;
    MutexLock lock(&mu_);
    if (verified_.size() >= kMaxVerified) verified_.clear();
    verified_.emplace(chain_pem, *client);
  }
  if (client->expires > absl::Now()) return client;
  return Unauthenticated(kCredentialsExpired, "the client certificate has expired; use a new one");
}

absl::StatusOr<Certificates::Client> Certificates::VerifyUncached(
    const std::string& chain_pem) const {
  const std::vector<Certificate> chain = ReadCertificates(chain_pem);
  if (chain.empty() || client_authorities_ == nullptr) {
    return Unauthenticated(kCredentialsMissing, "the client sent no certificate");
  }
  const std::unique_ptr<STACK_OF(X509), void (*)(STACK_OF(X509)*)> intermediates(
      sk_X509_new_null(), [](STACK_OF(X509) * stack) { sk_X509_free(stack); });
  for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(intermediates.get(), chain[i].get());
  const StoreContext context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), client_authorities_.get(), chain.front().get(),
                      intermediates.get());
  X509_STORE_CTX_set_purpose(context.get(), X509_PURPOSE_SSL_CLIENT);
  const bool good = X509_verify_cert(context.get()) == 1;
  ERR_clear_error();
  if (!good) {
    return Unauthenticated(
        kCredentialsInvalid,
        absl::StrCat("the server doesn't accept the client certificate: ",
                     X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()))));
  }
  Client client{.expires = absl::InfiniteFuture()};
  TENSORD_ASSIGN_OR_RETURN(client.name, NameOf(chain.front().get()));
  const STACK_OF(X509)* verified = X509_STORE_CTX_get0_chain(context.get());
  for (int i = 0; i < sk_X509_num(verified); ++i) {
    client.expires =
        std::min(client.expires, ToTime(X509_get0_notAfter(sk_X509_value(verified, i))));
  }
  return client;
}

}  // namespace tensord::server
