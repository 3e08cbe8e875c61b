// TLS for a listener, with certificates that change while it listens.
#pragma once

#include <grpc/grpc_security.h>
#include <grpcpp/security/server_credentials.h>

#include <functional>
#include <memory>

#include "tensord/server/rpc/auth/certificates.h"

namespace tensord::server {

// Each new connection has the certificates that `current` returns, which is called from gRPC's
// threads and must outlive the server. Connections that stand keep what they were made with.
//
// This is gRPC's plain TLS with its hook for each handshake, which the C++ interface doesn't offer;
// the experimental one that it does offer instead watches files, and takes what is in them unseen.
// TLS 1.2 and 1.3. One object for each listener, kept for as long as the server.
class TlsListenerCredentials final : public grpc::ServerCredentials {
 public:
  using Current = std::function<std::shared_ptr<const Certificates>()>;

  TlsListenerCredentials(Current current, const TlsOptions& options);
  ~TlsListenerCredentials() override;

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override;
  // None: the gate does all.
  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config);

  const Current current_;
  // What was given last; gRPC asks with a lock of the listener held.
  std::shared_ptr<const Certificates> given_;
  grpc_server_credentials* credentials_;
};

}  // namespace tensord::server
