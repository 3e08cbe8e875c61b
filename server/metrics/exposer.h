// The address at which Prometheus reads the metrics.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "tensord/server/metrics/http_server.h"
#include "tensord/server/metrics/snapshot.h"

namespace tensord::server::metrics {

struct ExposerOptions {
  // "HOST:PORT" or "[IPV6]:PORT". Port 0: a free one. Of a host name with several addresses, the
  // first is used.
  std::string listen;
  // If false, Start() fails for an address that other machines can reach.
  bool allow_remote = false;
};

// Serves the metrics as text at http://ADDRESS/metrics, without TLS and authentication.
// HttpServer's limits protect it from its clients.
class Exposer {
 public:
  // Binds the address and starts a thread, which calls `collect` for scrapes. If the address is
  // malformed, returns INVALID_ARGUMENT; if other machines can reach it and that isn't allowed,
  // FAILED_PRECONDITION; if it can't be bound, UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<Exposer>> Start(const ExposerOptions& options,
                                                        std::function<void(Snapshot*)> collect);

  // The address as bound, with the port that was chosen: "127.0.0.1:9464".
  const std::string& address() const { return server_->address(); }
  // Returns whether other machines can reach the address.
  bool remote() const { return remote_; }

 private:
  Exposer(std::unique_ptr<HttpServer> server, bool remote)
      : server_(std::move(server)), remote_(remote) {}

  const std::unique_ptr<HttpServer> server_;
  const bool remote_;
};

}  // namespace tensord::server::metrics
