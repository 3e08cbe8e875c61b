// The server's certificate and key, and who signs the certificates of its clients.
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

// Files in PEM.
struct TlsOptions {
  std::string cert_file;  // and what it takes up to an authority; empty: no TLS
  std::string key_file;
  std::string client_ca_file;               // empty: clients aren't asked for certificates
  bool client_certificate_required = true;  // where they are

  bool enabled() const { return !cert_file.empty(); }
};

// The whole of a file of at most 16 MiB. The error names the file.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path);

// What one look at the files has brought, and found to be good. Immutable, thread-safe.
class Certificates {
 public:
  // The error names the file and says what is wrong: it can't be read, holds no certificate or key,
  // the two don't belong together, the certificate's time is over or hasn't come.
  static absl::StatusOr<std::shared_ptr<const Certificates>> Load(const TlsOptions& options);
  ~Certificates();

  const std::string& chain_pem() const { return chain_pem_; }
  const std::string& key_pem() const { return key_pem_; }
  const std::string& client_ca_pem() const { return client_ca_pem_; }

  // Whom a client's certificate stands for: its first URI, or else its first DNS name, or else its
  // common name, and which of them that is: "uri:spiffe://…", "dns:box", "cn:alice".
  struct Client {
    std::string name;
    absl::Time expires;  // it, or a certificate above it
  };

  // `chain_pem`: a certificate and what it takes up to an authority. Checked against the client
  // authorities as they are now: what gRPC has found when the connection was made may be long past.
  // The error repeats nothing of the certificate.
  absl::StatusOr<Client> Verify(const std::string& chain_pem) const;

 private:
  Certificates() = default;
  absl::StatusOr<Client> VerifyAnew(const std::string& chain_pem) const;

  std::string chain_pem_;
  std::string key_pem_;
  std::string client_ca_pem_;
  std::shared_ptr<x509_store_st> client_authorities_;

  mutable Mutex mu_;
  // What was found good, so that a call costs no signature.
  mutable absl::flat_hash_map<std::string, Client> verified_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
