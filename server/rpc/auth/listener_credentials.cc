#include "tensord/server/rpc/auth/listener_credentials.h"

#include <grpc/grpc.h>

#include <string>
#include <utility>

namespace tensord::server {

TlsListenerCredentials::TlsListenerCredentials(Current current, const TlsOptions& options)
    : current_(std::move(current)) {
  auto request = GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
  if (!options.client_ca_file.empty()) {
    request = options.client_certificate_required
                  ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                  : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;
  }
  credentials_ = grpc_ssl_server_credentials_create_with_options(
      grpc_ssl_server_credentials_create_options_using_config_fetcher(request, &Fetch, this));
}

TlsListenerCredentials::~TlsListenerCredentials() { grpc_server_credentials_release(credentials_); }

int TlsListenerCredentials::AddPortToServer(const std::string& address, grpc_server* server) {
  return grpc_server_add_http2_port(server, address.c_str(), credentials_);
}

grpc_ssl_certificate_config_reload_status TlsListenerCredentials::Fetch(
    void* self, grpc_ssl_server_certificate_config** config) {
  auto* credentials = static_cast<TlsListenerCredentials*>(self);
  std::shared_ptr<const Certificates> current = credentials->current_();
  if (current == credentials->last_fetched_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  const grpc_ssl_pem_key_cert_pair pair = {.private_key = current->key_pem().c_str(),
                                           .cert_chain = current->chain_pem().c_str()};
  // gRPC requires authorities here. If the server requests no client certificates, they have no
  // effect.
  const bool requests_certificates = !current->client_ca_pem().empty();
  const std::string& authorities =
      requests_certificates ? current->client_ca_pem() : current->chain_pem();
  *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
  credentials->last_fetched_ = std::move(current);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

}  // namespace tensord::server
