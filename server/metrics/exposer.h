// The address at which Prometheus reads the metrics.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/metrics/snapshot.h"

struct MHD_Connection;
struct MHD_Daemon;
struct MHD_Response;

namespace tensord::server::metrics {

struct ExposerOptions {
  // "HOST:PORT" or "[IPV6]:PORT". Port 0 stands for a free port. If a host name has several
  // addresses, the first one is used.
  std::string listen;
  // If false, Start() fails for an address that other machines can reach.
  bool allow_remote = false;
  // The maximum duration of a connection, with its request and its response. The request may arrive
  // byte by byte.
  std::chrono::milliseconds max_connection_time{10'000};
};

// Serves the metrics as text at http://ADDRESS/metrics, without TLS and authentication.
//
// libmicrohttpd's thread serves all connections, without waiting for any client. Another thread
// makes the documents: the metrics as text. Each connection serves one request. The limits below
// protect the server from its clients.
class Exposer {
 public:
  // How many connections are open at once. Further ones wait until one of them ends.
  static constexpr unsigned kMaxConnections = 16;
  // The memory for the line and headers of a connection's request.
  static constexpr size_t kMaxConnectionBytes = 16 << 10;
  // The minimum time between two documents. Requests that come earlier wait. They share the next
  // document.
  static constexpr std::chrono::milliseconds kMinInterval{20};

  // Binds the address and starts the threads. One of them calls `collect`, which must not block for
  // long. If the address is malformed, returns INVALID_ARGUMENT. If other machines can reach it and
  // that isn't allowed, returns FAILED_PRECONDITION. If it can't be resolved or bound, returns
  // UNAVAILABLE with the system's reason.
  static absl::StatusOr<std::unique_ptr<Exposer>> Start(const ExposerOptions& options,
                                                        std::function<void(Snapshot*)> collect);
  // Closes all connections.
  ~Exposer();
  Exposer(const Exposer&) = delete;
  Exposer& operator=(const Exposer&) = delete;

  // Returns the bound address with its port, such as "127.0.0.1:9464".
  const std::string& address() const { return address_; }
  // Returns whether other machines can reach the address.
  bool remote() const { return remote_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    int fd;
    Clock::time_point end;
  };

  Exposer(const ExposerOptions& options, std::function<void(Snapshot*)> collect, bool remote);

  // Answers a request, or suspends it until its document is ready. libmicrohttpd calls it for each
  // request, and again after a suspension. libmicrohttpd keeps `*state` between these calls; it is
  // null in the first one. Returns false if the connection must be closed.
  bool Answer(MHD_Connection* connection, absl::string_view method, absl::string_view path,
              void** state);
  // Runs on the exposer's own thread: makes documents for the suspended requests, and ends old
  // connections.
  void Run();
  void MakeDocument() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ResumeRequests() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Track the open connections. libmicrohttpd's thread calls them.
  void AddConnection(int fd);
  void RemoveConnection(int fd);
  // Shuts down the connections that have been open for max_connection_time.
  void EndOldConnections(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::chrono::milliseconds max_connection_time_;
  const std::function<void(Snapshot*)> collect_;
  const bool remote_;
  std::string address_;
  MHD_Daemon* daemon_ = nullptr;

  Mutex mu_;  // also held while a document is made
  CondVar wake_;
  std::vector<MHD_Connection*> suspended_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<MHD_Response> document_ ABSL_GUARDED_BY(mu_);  // the latest; null: none
  Clock::time_point next_document_ ABSL_GUARDED_BY(mu_);     // earliest time of the next document
  std::deque<Connection> connections_ ABSL_GUARDED_BY(mu_);  // open ones, the oldest first
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace tensord::server::metrics
