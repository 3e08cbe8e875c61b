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
#include "tensord/common/util/mutex.h"
#include "tensord/server/rpc/auth/limited_socket.h"

namespace tensord::server {

// Accepts connections for gRPC. After the process has run out of descriptors once, gRPC's own
// listener never accepts again. And gRPC reads everything that arrives before any handler runs.
//
// Connection admission limits how many bytes gRPC reads from a TCP connection, by its state:
// - unadmitted: the gate has admitted no call of it yet. The limit is 32 KiB. From all unadmitted
//   connections together, gRPC reads at most 3 MiB (the pool).
// - admitted: the gate has admitted a call. The limit is 32 KiB beyond what handlers have received.
//   There is no limit while a handler waits for a request, unless calls of the connection were
//   refused or cancelled recently.
// - trusted: a call has used a session. There is no limit.
//
// When the first call of a connection has ended, the limit rises by 8 MiB: gRPC drops the rest of
// the call's request. A limit delays bytes, but no byte is lost: the peer's TCP connection waits
// until handlers have received more. No decision depends on how fast bytes arrive.
//
// If too many calls of a connection are refused or cancelled (a token bucket), the server closes
// the connection. If the pool is full, the server closes the oldest unadmitted connection that
// holds at least the average share of it. If there are too many unadmitted connections, or if
// descriptors run short, it closes the oldest unadmitted one. Unix sockets have no limits: the file
// system's permissions protect them.
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

  // Begins to accept. Call it once the server is built. If the system can't enforce limits, prints
  // a warning on standard error and accepts without them.
  void Start();
  // Stops accepting, and closes unadmitted connections. The others stay, without limits.
  void Stop();

  // How a connection's record counts a call. kNotCounted: the connection has no limit and counts no
  // calls.
  enum class CallState { kNotCounted, kRefused, kRequestPending, kRequestReceived };

  // The functions below report events of calls. They name a connection by
  // grpc::ServerContext::peer(). Connections from one peer address and port to several addresses of
  // this server have the same name. A call then counts for each of them, and each has its own
  // limit. `began_at` is the time when the call was admitted or refused. Connections that were
  // accepted later ignore the call.

  // Reports that the gate has admitted a call. Returns kRequestPending, or kNotCounted if the
  // connection is trusted or uses a Unix socket.
  CallState CallAdmitted(absl::string_view peer);
  // Reports that the gate has refused a call. Returns kRefused. If too many calls of the connection
  // were refused or cancelled, closes the connection.
  CallState CallRefused(absl::string_view peer);
  // Reports that the request of an admitted call has been received. `bytes`: its encoded size.
  void RequestReceived(absl::string_view peer, Clock::time_point began_at, int64_t bytes);
  // Reports that an admitted call uses a session. The connection is trusted from now on.
  void SessionUsed(absl::string_view peer, Clock::time_point began_at);
  // Reports that a refused call is served, because its request is public: answered without
  // credentials. The call then doesn't count as refused.
  void RefusedCallServed(absl::string_view peer, Clock::time_point began_at);
  // Reports that the client has cancelled a call. If too many calls of the connection were refused
  // or cancelled, closes the connection.
  void CallCancelled(absl::string_view peer, Clock::time_point began_at);
  // Reports that gRPC has finished a call. `state`: the call's last state. If more of the call's
  // request arrives, gRPC drops it.
  void CallEnded(absl::string_view peer, Clock::time_point began_at, CallState state);

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
    PeerKey peer;
    std::unique_ptr<LimitedSocket> socket;
    Clock::time_point accepted_at;
    bool admitted = false;
    bool trusted = false;
    int requests_pending = 0;         // admitted calls whose request hasn't been received
    int refused_calls = 0;            // refused calls that gRPC hasn't finished
    bool drops_requests = false;      // a call has ended: the limit includes kDroppedBytes
    int64_t credit_bytes = 0;         // added to the window: bytes that gRPC no longer holds
    double rejections = 0;            // refused and cancelled calls in the token bucket
    Clock::time_point rejections_at;  // when `rejections` was computed
  };

  static PeerKey KeyOf(const sockaddr_storage& peer);
  // Parses gRPC's name of a peer, "ipv4:127.0.0.1:5" or "ipv6:%5B::1%5D:5". Returns nullopt for any
  // other name.
  static std::optional<PeerKey> ParsePeer(absl::string_view peer);
  absl::Status ListenTcp(const std::string& address, std::vector<Listener>* listeners,
                         std::string* bound);
  absl::Status ListenUnix(const std::string& path, Listener* listener);
  void Run();
  // Accepts one connection. Returns false if none waits or none can be accepted now. Sets errno: to
  // EMFILE or ENFILE if the next one has to wait until a connection has been closed, to another
  // error or 0 otherwise.
  bool Accept(const Listener& listener);
  // Returns whether the process has descriptors left for connections.
  bool HasDescriptors() const;
  // Closes the oldest unadmitted connection, unless it was accepted less than kMinUnadmittedTime
  // ago. Returns whether there is an unadmitted connection.
  bool CloseOldestUnadmitted();
  // While the pool is full, closes the oldest unadmitted connection that holds at least the average
  // share of it. Then lets gRPC read the others again.
  void MakeRoomInPool();
  // Removes the records of connections that have ended. Adds kRefillBytes or kUnadmittedRefillBytes
  // to the credit of the others.
  void Inspect();
  // Resets a connection and removes its record.
  void Close(Connection& connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Counts a refused or cancelled call in the connection's token bucket. Returns false if the
  // bucket overflows.
  static bool CountRejection(Connection& connection, Clock::time_point now);
  // Sets the limit of a connection according to its state.
  void UpdateLimit(Connection& connection, Clock::time_point now);
  // Returns the refused and cancelled calls in the token bucket at `now`.
  static double RejectionsAt(const Connection& connection, Clock::time_point now);
  // Calls `update` with each connection of `peer` that was accepted before `began_at`, and with the
  // time. Closes those for which it returns false.
  template <typename Update>
  void ForEach(absl::string_view peer, Clock::time_point began_at, Update update);
  // Calls `visit` with each unadmitted connection.
  template <typename Visit>
  void ForEachUnadmitted(Visit visit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  ReceivePool pool_;        // the pool of the unadmitted connections
  bool has_limits_ = true;  // the system enforces limits
  std::vector<Listener> listeners_;
  std::vector<std::string> addresses_;
  int stop_fd_ = -1;
  std::thread thread_;

  Mutex mu_;
  absl::flat_hash_map<PeerKey, std::vector<Connection>> connections_ ABSL_GUARDED_BY(mu_);
  int unadmitted_ ABSL_GUARDED_BY(mu_) = 0;  // number of unadmitted connections
};

}  // namespace tensord::server
