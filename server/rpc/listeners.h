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
// - unadmitted: the gate has let no call of it in yet. gRPC reads at most kUnadmittedBytes of it,
//   and of all unadmitted connections together at most the pool's capacity. While the pool is full,
//   the oldest unadmitted connection is closed.
// - admitted: the gate has let a call in. gRPC reads a window beyond what handlers have received.
// - trusted: a call has used a session. gRPC reads without a bound.
// A bound never costs a byte: the peer's TCP connection waits until handlers have caught up. No
// decision depends on how fast bytes arrive. A connection is closed for calls that are refused or
// cancelled again and again (a token bucket), and if the server needs its descriptor or its share
// of the pool while it is unadmitted.
// Unix sockets have no such bounds: the file system's permissions guard them.
//
// Thread-safe, except where a method says otherwise.
class Listeners {
 public:
  // `max_message_bytes`: the largest message that gRPC receives.
  explicit Listeners(int64_t max_message_bytes);
  ~Listeners();  // Stop()

  // Binds "HOST:PORT" (port 0: a free one), "[V6]:PORT" or "unix:PATH", and adds it to the server
  // that is being built. Returns UNAVAILABLE with the reason if the address can't be bound. Call it
  // before Start().
  absl::Status Listen(const std::string& address, grpc::ServerBuilder* builder,
                      std::shared_ptr<grpc::ServerCredentials> credentials);
  // The addresses as bound.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Begins to accept. Call it once the server is built.
  void Start();
  // Stops accepting. Open connections stay, without bounds.
  void Stop();

  // What follows names a connection by grpc::ServerContext::peer(). Connections of one peer address
  // and port to different addresses of this server have the same name: a call then counts for each
  // of them, and each has bounds of its own.

  // The gate has let a call in, whose request hasn't been received. Returns true if the connection
  // is trusted: later events of the call then have no effect.
  bool CallAdmitted(absl::string_view peer);
  // The request of an admitted call has been received, or the call has ended without one.
  void RequestReceived(absl::string_view peer, int64_t bytes);
  // An admitted call uses a session.
  void SessionUsed(absl::string_view peer);
  // The gate has refused a call, or the client has cancelled one.
  void CallRejected(absl::string_view peer);
  // A call that the gate refused has been served, because its method is open to every peer.
  void PublicCallServed(absl::string_view peer);

 private:
  using Clock = std::chrono::steady_clock;
  // A peer's address and port. An IPv4 address is the same in its IPv6 form.
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
    int64_t earned_bytes = 0;  // at most what has been received
    double rejections = 0;     // the token bucket's level at rejections_at
    Clock::time_point rejections_at;
  };

  static PeerKey KeyOf(const sockaddr_storage& peer);
  // Parses gRPC's name of a peer: "ipv4:127.0.0.1:5", "ipv6:%5B::1%5D:5". Returns none for another.
  static std::optional<PeerKey> ParsePeer(absl::string_view peer);
  absl::Status ListenTcp(const std::string& address, std::vector<Listener>* listeners,
                         std::string* bound);
  absl::Status ListenUnix(const std::string& path, Listener* listener);
  void Run();
  // Returns false if no connection waits, or if none can be accepted now.
  bool Accept(const Listener& listener);
  // Whether the process has descriptors left for connections.
  bool HasDescriptors() const;
  enum class Unadmitted { kNone, kAllYoung, kClosedOne };
  // Closes the unadmitted connection that was accepted first, if it was accepted before `before`.
  Unadmitted CloseOldestUnadmitted(Clock::time_point before);
  // Makes room in the pool if it is full, and has the connections that waited for room go on.
  void RelievePool();
  // Forgets connections that have ended. `refill`: raises the bounds of admitted ones a little.
  void Inspect(bool refill);
  // Sets the bound of a connection by its state.
  void UpdateLimit(Connection& connection, Clock::time_point now);
  static double RejectionsAt(const Connection& connection, Clock::time_point now);
  // Calls `update` with each connection of that peer; those that it returns false for are closed.
  template <typename Update>
  void ForEach(absl::string_view peer, Update update);

  const int64_t max_message_bytes_;
  ReceivePool pool_;  // of the unadmitted connections
  std::vector<Listener> listeners_;
  std::vector<std::string> addresses_;
  int stop_fd_ = -1;
  std::thread thread_;

  Mutex mu_;
  absl::flat_hash_map<PeerKey, std::vector<Connection>> connections_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
