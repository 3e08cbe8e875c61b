// The sockets that the server listens on, and connection admission.
#pragma once

#include <grpcpp/grpcpp.h>
#include <netinet/in.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tensord/common/mutex.h"
#include "tensord/server/rpc/limited_socket.h"

namespace tensord::server {

// Accepts connections for gRPC. gRPC's own listener never accepts again once the process has run
// out of descriptors, and gRPC reads whatever arrives before any handler runs.
//
// Connection admission bounds what a TCP connection holds, by state:
// - unadmitted: the gate has admitted no call of it yet. gRPC reads at most kUnadmittedBytes from
//   it, and at most the pool's capacity from all unadmitted connections together.
// - admitted: the gate has admitted a call. gRPC reads a window beyond what handlers have received.
// - trusted: a call has used a session. gRPC reads without a bound.
// A bound delays bytes and loses none: the peer's TCP connection waits until handlers have received
// more. No decision depends on how fast bytes arrive.
//
// The server closes a connection if too many of its calls are refused or cancelled (a token
// bucket). If the pool is full, it closes the unadmitted connection that holds most of it. If there
// are too many unadmitted connections, or if descriptors run short, it closes the oldest of them.
// Unix sockets have no such bounds: the file system's permissions guard them.
//
// Thread-safe, except where a method says otherwise.
class Listeners {
 public:
  using Clock = std::chrono::steady_clock;

  Listeners();
  ~Listeners();  // Stop()

  // Binds "HOST:PORT" (port 0: a free one), "[V6]:PORT" or "unix:PATH", and adds it to the server
  // that is being built. Returns UNAVAILABLE with the reason if the address can't be bound. Call it
  // before Start().
  absl::Status Listen(const std::string& address, grpc::ServerBuilder* builder,
                      std::shared_ptr<grpc::ServerCredentials> credentials);
  // Returns the addresses as bound, with the ports that were chosen.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Begins to accept. Call it once the server is built. If the system can't enforce bounds, says so
  // on standard error and accepts without them.
  void Start();
  // Stops accepting, and closes unadmitted connections. The others stay, without bounds.
  void Stop();

  // The functions below report events of calls. They name a connection by
  // grpc::ServerContext::peer(). Connections from one peer address and port to several addresses of
  // this server have the same name. A call then counts for each of them, and each has bounds of its
  // own.

  // The gate has admitted a call whose request hasn't been received. Returns true if the connection
  // is trusted or has no bounds: RequestReceived() and SessionUsed() then have no effect.
  bool CallAdmitted(absl::string_view peer);
  // The request of a call that was admitted at `admitted_at` has been received: so many bytes, or
  // none if the call has ended without a request.
  void RequestReceived(absl::string_view peer, std::optional<int64_t> bytes,
                       Clock::time_point admitted_at);
  // An admitted call uses a session.
  void SessionUsed(absl::string_view peer);
  // The gate has refused a call. If too many calls were refused or cancelled, closes the
  // connection.
  void CallRefused(absl::string_view peer);
  // The server waits for the request of a refused call, because it may be public. It waits no more,
  // and the request was public (`served`) or wasn't.
  void PublicCallBegan(absl::string_view peer);
  void PublicCallEnded(absl::string_view peer, bool served);
  // The client has cancelled a call. The same holds.
  void CallCancelled(absl::string_view peer);

 private:
  // A peer's address and port. An IPv4 address equals its IPv6 form.
  struct PeerKey {
    in6_addr address = {};
    uint16_t port = 0;

    bool operator==(const PeerKey& other) const {
      return port == other.port && std::memcmp(&address, &other.address, sizeof(address)) == 0;
    }
    template <typename H>
    friend H AbslHashValue(H h, const PeerKey& key) {
      h = H::combine_contiguous(std::move(h), key.address.s6_addr, sizeof(key.address.s6_addr));
      return H::combine(std::move(h), key.port);
    }
  };
  struct Listener {
    int fd = -1;
    bool is_unix = false;
    std::string path;  // if is_unix
    std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  };
  struct Connection {
    std::unique_ptr<LimitedSocket> socket;
    Clock::time_point accepted_at;
    bool admitted = false;
    bool trusted = false;
    int requests_pending = 0;  // of admitted calls
    int public_pending = 0;    // refused calls whose requests the server waits for
    bool was_refused = false;
    int64_t credit_bytes = 0;  // what it may have sent beside the window
    double rejections = 0;     // the token bucket's level at rejections_at
    Clock::time_point rejections_at;
  };

  static PeerKey KeyOf(const sockaddr_storage& peer);
  // Parses gRPC's name of a peer, "ipv4:127.0.0.1:5" or "ipv6:%5B::1%5D:5". Returns nullopt for any
  // other name.
  static std::optional<PeerKey> ParsePeer(absl::string_view peer);
  absl::Status ListenTcp(const std::string& address, std::vector<Listener>* listeners,
                         std::string* bound);
  absl::Status ListenUnix(const std::string& path, Listener* listener);
  void Run();
  // Accepts one connection. Returns false if none waits, or if none can be accepted now.
  bool Accept(const Listener& listener);
  // Returns whether the process has descriptors left for connections.
  bool HasDescriptors() const;
  // Closes the oldest unadmitted connection, unless it was accepted less than kMinUnadmittedTime
  // ago. Returns whether there is an unadmitted connection.
  bool CloseOldestUnadmitted();
  // While the pool is full, closes the unadmitted connection that holds most of it. Then lets gRPC
  // read the others again.
  void MakeRoomInPool();
  // Removes connections that have ended. If `refill`, raises the bounds of the others a little.
  void Inspect(bool refill);
  // gRPC holds nothing of what the connection has sent: its calls have been refused.
  static void CreditAll(Connection& connection);
  // Adds to the connection's token bucket. Returns false if it overflows.
  static bool CountRejection(Connection& connection, Clock::time_point now);
  // Sets the bound of a connection according to its state.
  void UpdateLimit(Connection& connection, Clock::time_point now);
  static double RejectionsAt(const Connection& connection, Clock::time_point now);
  // Calls `update` with each connection of `peer` and the time. Closes those for which it returns
  // false.
  template <typename Update>
  void ForEach(absl::string_view peer, Update update);
  // Calls `visit` with each unadmitted connection.
  template <typename Visit>
  void ForEachUnadmitted(Visit visit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  ReceivePool pool_;  // of the unadmitted connections
  bool bounded_ = true;
  std::vector<Listener> listeners_;
  std::vector<std::string> addresses_;
  int stop_fd_ = -1;
  std::thread thread_;

  Mutex mu_;
  absl::flat_hash_map<PeerKey, std::vector<Connection>> connections_ ABSL_GUARDED_BY(mu_);
  int unadmitted_ ABSL_GUARDED_BY(mu_) = 0;  // of these
};

}  // namespace tensord::server
