// TLS for a listener whose certificates may change while it listens.
#pragma once

#include <grpc/grpc_security.h>
#include <grpcpp/security/server_credentials.h>

#include <functional>
#include <memory>

#include "tensord/server/rpc/auth/certificates.h"

namespace tensord::server {

// Each new connection uses the certificates that `current` returns. Existing connections keep
// theirs. gRPC's threads call `current`, so it must be thread-safe and outlive the server. Supports
// TLS 1.2 and 1.3. Make one object for each listener. It must outlive the server.
//
// Uses the C interface of gRPC's TLS, which has a callback for each handshake. The C++ interface
// has only an experimental class that watches files itself, and uses them unchecked.
class TlsListenerCredentials final : public grpc::ServerCredentials {
 public:
  using Current = std::function<std::shared_ptr<const Certificates>()>;

  TlsListenerCredentials(Current current, const TlsOptions& options);
  ~TlsListenerCredentials() override;

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override;
  // Does nothing: the authenticator authenticates calls.
  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config);

  const Current current_;
  // The certificates that gRPC got last. gRPC calls Fetch() with a lock of the listener held.
  std::shared_ptr<const Certificates> last_fetched_;
  grpc_server_credentials* credentials_;
};

}  // namespace tensord::server
