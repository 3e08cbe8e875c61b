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
// bucket). It closes the oldest unadmitted connection if the pool is full or descriptors run short.
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
  // Returns the addresses as bound, with the ports that were chosen.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Begins to accept. Call it once the server is built.
  void Start();
  // Stops accepting. Open connections stay, without bounds.
  void Stop();

  // The functions below report events of calls. They name a connection by
  // grpc::ServerContext::peer(). Connections from one peer address and port to several addresses of
  // this server have the same name. A call then counts for each of them, and each has bounds of its
  // own.

  // The gate has admitted a call whose request hasn't been received. Returns true if the connection
  // is trusted or has no bounds: RequestReceived() and SessionUsed() then have no effect.
  bool CallAdmitted(absl::string_view peer);
  // The request of an admitted call has been received, or the call has ended without one.
  void RequestReceived(absl::string_view peer, int64_t bytes);
  // An admitted call uses a session.
  void SessionUsed(absl::string_view peer);
  // The gate has refused a call, or the client has cancelled one. If there were too many such
  // calls, closes the connection.
  void CallRejected(absl::string_view peer);
  // The server serves a call that the gate has refused: its request is open to all callers.
  void PublicCallServed(absl::string_view peer);

 private:
  using Clock = std::chrono::steady_clock;
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
    int64_t credit_bytes = 0;  // by calls; at most socket->received_bytes()
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
  enum class Unadmitted { kNone, kAllTooRecent, kClosedOne };
  // Closes the unadmitted connection that was accepted first, if it was accepted before `before`.
  // Returns kNone if there is no unadmitted connection, kAllTooRecent if all were accepted later.
  Unadmitted CloseOldestUnadmitted(Clock::time_point before);
  // While the pool is full, closes the oldest unadmitted connection. Then lets gRPC read the others
  // again.
  void MakeRoomInPool();
  // Removes connections that have ended. If `refill`, raises the bounds of admitted ones by
  // kRefillBytes.
  void Inspect(bool refill);
  // Sets the bound of a connection according to its state.
  void UpdateLimit(Connection& connection, Clock::time_point now);
  static double RejectionsAt(const Connection& connection, Clock::time_point now);
  // Calls `update` with each connection of `peer` and the time. Closes those for which it returns
  // false.
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
