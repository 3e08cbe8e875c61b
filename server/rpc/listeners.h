// Sockets that are listened on, and who has come in by them.
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

namespace tensord::server {

// Accepts connections for gRPC, whose own listener never accepts again once it has run out of
// descriptors, and reads whatever comes, however much, before anybody can say a word. Here those
// who haven't got a call through yet are strangers: each of them, and all of them together, may
// send so many bytes and take so many seconds, and some descriptors are kept free for everybody
// else. Those who keep calling in vain, or take calls back again and again, are sent away too, and
// so are those from whom more comes than their calls that have been heard of account for: more
// calls come in than can be. Until somebody uses a session little may wait to be read. What a
// stranger costs is seen by the kernel's count of bytes received (tcp(7), TCP_INFO), so that it
// holds whatever gRPC does with them. On Unix sockets the system's permissions are the guard, and
// there are no counts.
//
// Thread-safe where it doesn't say otherwise.
class Listeners {
 public:
  Listeners() = default;
  ~Listeners();  // Stop()

  // Takes "HOST:PORT" (port 0: a free one), "[V6]:PORT" or "unix:PATH", and adds it to the server
  // that is being built. UNAVAILABLE, saying why, where it can't be had. Before Start().
  absl::Status Listen(const std::string& address, grpc::ServerBuilder* builder,
                      std::shared_ptr<grpc::ServerCredentials> credentials);
  // As bound.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Once the server is built.
  void Start();
  // Accepts no more. Connections that are there stay.
  void Stop();

  // A call has been let in from here: grpc::ServerContext::peer(). Whether Trust() would change
  // nothing.
  bool Welcome(absl::string_view peer);
  // Somebody from here uses a session, and may send as fast as the network goes.
  void Trust(absl::string_view peer);
  // From here a large request is awaited, or isn't any more.
  void ExpectMuch(absl::string_view peer, bool expected);
  // A call from here was refused, or was taken back by who made it.
  void Strike(absl::string_view peer);

 private:
  using Clock = std::chrono::steady_clock;
  // Who is at the other end; IPv4 is the same whether it came as IPv6 or not.
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
    std::string path;  // of a Unix socket
    std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  };
  struct Connection {
    int fd;  // a second descriptor of the socket: gRPC closes its own when it likes
    Clock::time_point since;
    bool welcome = false;
    bool trusted = false;
    bool reads_much = false;  // a large request is on its way
    int64_t received_bytes = 0;
    int64_t earned_bytes = 0;  // by calls
    int looks = 0;             // that found it to have sent too much
    double strikes = 0;        // as of struck_at
    Clock::time_point struck_at;
  };

  static PeerKey KeyOf(const sockaddr_storage& peer);
  // The same from what gRPC calls a peer: "ipv4:127.0.0.1:5", "ipv6:%5B::1%5D:5"; none for another.
  static std::optional<PeerKey> ParsePeer(absl::string_view peer);
  absl::Status ListenTcp(const std::string& address, std::vector<Listener>* listeners,
                         std::string* bound);
  absl::Status ListenUnix(const std::string& path, Listener* listener);
  void Run();
  // False where there was none to accept, or none can be for now.
  bool Accept(const Listener& listener);
  // Looks at those who aren't trusted, or at all connections, and forgets those that have ended.
  // How soon to look again, in milliseconds.
  int Inspect(bool all);
  // Whether it has sent far more than its calls account for, look after look: calls that wait to be
  // heard of, since they come faster than they can be.
  static bool Floods(Connection& connection, int64_t received_bytes);
  static void SendAway(const Connection& connection);

  std::vector<Listener> listeners_;
  std::vector<std::string> addresses_;
  int wake_fd_ = -1;
  bool few_descriptors_ = false;  // the thread's: a connection was closed for want of them
  std::thread thread_;

  Mutex mu_;
  absl::flat_hash_map<PeerKey, Connection> connections_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
