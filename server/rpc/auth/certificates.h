// The server's certificate and key, and the authorities that sign its clients' certificates.
#pragma once

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tensord/common/util/mutex.h"

struct x509_store_st;  // OpenSSL's

namespace tensord::server {

// The files are in PEM.
struct TlsOptions {
  std::string cert_file;  // the server's certificate and its intermediates; empty: no TLS
  std::string key_file;
  std::string client_ca_file;               // empty: the server requests no client certificates
  bool client_certificate_required = true;  // applies if client_ca_file isn't empty

  bool enabled() const { return !cert_file.empty(); }
};

// Returns the content of a regular file. If the file can't be read, is empty or is larger than
// 16 MiB, returns an error that names it.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path);

// The valid content of the files at one time. Immutable but for a cache. Thread-safe.
class Certificates {
 public:
  // Reads and checks the files. Returns an error that names the file if it can't be read or
  // contains no certificate or key, if certificate and key don't match, or if the certificate has
  // expired or isn't valid yet.
  static absl::StatusOr<std::shared_ptr<const Certificates>> Load(const TlsOptions& options);

  const std::string& chain_pem() const { return chain_pem_; }
  const std::string& key_pem() const { return key_pem_; }
  const std::string& client_ca_pem() const { return client_ca_pem_; }

  // The client of a certificate.
  struct Client {
    // The certificate's first URI, or else its first DNS name, or else its common name, with the
    // kind of name: "uri:spiffe://…", "dns:box", "cn:alice".
    std::string name;
    absl::Time expires;  // the earliest expiry in the chain
  };

  // Verifies a client's certificate against the client authorities. `chain_pem` has the
  // certificate, then its intermediates. gRPC has verified it at the handshake, but maybe against
  // earlier authorities. If the chain isn't valid, returns UNAUTHENTICATED; the message repeats
  // nothing of the certificate.
  absl::StatusOr<Client> Verify(const std::string& chain_pem) const;

 private:
  Certificates() = default;
  absl::StatusOr<Client> VerifyUncached(const std::string& chain_pem) const;

  std::string chain_pem_;
  std::string key_pem_;
  std::string client_ca_pem_;
  std::shared_ptr<x509_store_st> client_authorities_;

  mutable Mutex mu_;
  // The chains that were verified, so that not each call costs a signature check.
  mutable absl::flat_hash_map<std::string, Client> verified_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
