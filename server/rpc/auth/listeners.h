// The sockets that the server listens on, and connection admission.
#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/rpc/auth/connection.h"
#include "tensord/server/rpc/auth/limited_socket.h"
#include "tensord/server/rpc/auth/listening_socket.h"
#include "tensord/server/session/limits.h"
#include "tensord/server/session/principal.h"

namespace tensord::server {

// Accepts connections in place of gRPC, because gRPC's own listener never accepts again after the
// process has run out of descriptors, and because gRPC reads without a limit before a handler runs.
// Each TCP connection has a Connection, which limits what gRPC reads from it.
//
// The server closes a connection in these cases:
//- Too many of its calls were refused or cancelled (a token bucket).
//- The pool of unadmitted connections is full. The server then closes the oldest one that holds at
//  least the average share of the pool.
//- There are too many unadmitted connections, or too many in all, or descriptors run short. The
//  server then closes the oldest unadmitted one.
//- Its address has too many connections. The server then closes the new one.
//- It is admitted, it has no call, and its window remains full (Connection::Inspect()).
// Unix sockets have no limits: the file system's permissions protect them.
//
// Thread-safe, except where a method says otherwise.
class Listeners {
 public:
  // Calls its argument after handlers have handled all events that have happened before. Must not
  // block.
  using AfterEarlierEvents = std::function<void(std::function<void()>)>;

  explicit Listeners(const Limits& limits);
  ~Listeners();  // Stop()

  // Listens at an address, as ListenAt() does, for the server that is being built. Call it before
  // Start().
  absl::Status Listen(const std::string& address, grpc::ServerBuilder* builder,
                      std::shared_ptr<grpc::ServerCredentials> credentials);
  // Returns the addresses as bound, with the ports that were chosen.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Begins to accept. Call it after the server has been built. If the process has too few
  // descriptors left for connections, returns FAILED_PRECONDITION. If the system can't enforce
  // limits, prints a warning on standard error and accepts without them.
  absl::Status Start(AfterEarlierEvents after_earlier_events);
  // Stops accepting, and closes unadmitted connections. The others stay, without limits.
  void Stop();

  // Why the server closed a connection.
  enum class CloseReason { kNoRoom, kPoolFull, kRejectedCalls, kWindowFull };
  static constexpr std::array<absl::string_view, 4> kCloseReasons = {
      "no_room", "pool_full", "rejected_calls", "window_full"};
  // Why the server refused a connection: it closed the connection instead of serving it.
  enum class RefusalReason { kNoRoom, kAddressLimit, kSystem };
  static constexpr std::array<absl::string_view, 3> kRefusalReasons = {"no_room", "address_limit",
                                                                       "system"};
  struct Counts {
    // The connections so far.
    int64_t accepted = 0;  // without the refused ones
    std::array<int64_t, kRefusalReasons.size()> refused = {};
    std::array<int64_t, kCloseReasons.size()> closed = {};
    // The open TCP connections, by their state.
    int64_t unadmitted = 0;
    int64_t admitted = 0;
  };
  Counts counts() const;

  // Returns the connection of a call by grpc::ServerContext::peer(). Returns null for a Unix
  // socket, after the connection has been closed, and if the system can't enforce limits.
  ConnectionRef Find(absl::string_view peer) const;

  // Returns RESOURCE_EXHAUSTED if a message of `bytes` bytes is larger than a message may be. gRPC
  // 1.51 would also check this only after it has received the whole message.
  absl::Status CheckMessageSize(size_t bytes) const;

  // Report events of calls, as Connection's functions do. If the connection's token bucket is used
  // up, close the connection.
  //
  // Returns RESOURCE_EXHAUSTED if the principal has too many connections or no host memory left for
  // another one, or the connection has too many open calls.
  absl::Status AddAdmitted(const ConnectionRef& connection, Connection::Call* call,
                           const grpc::ServerContext& context, int64_t headers_bytes,
                           const PrincipalRef& principal);
  // `peer` is the result of grpc::ServerContext::peer(), and `connection` that of Find(peer).
  void AddRefused(absl::string_view peer, const ConnectionRef& connection, Connection::Call* call,
                  bool at_limit);
  void CountCancelled(const ConnectionRef& connection, bool has_deadline);

 private:
  struct Listener {
    ListeningSocket socket;
    std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  };

  void Run();
  // Accepts one connection. Returns false if none waits or none can be accepted now. Sets errno: to
  // EMFILE or ENFILE if the next one has to wait until a connection has been closed, to another
  // error or 0 otherwise.
  bool Accept(const Listener& listener);
  void CountRefused(RefusalReason reason);
  // Adds the record of a new connection. Returns null if the connection must be closed, and counts
  // it as refused.
  ConnectionRef AddConnection(int fd, const sockaddr_storage& peer);
  // Returns whether there is room for one more connection.
  bool HasRoom() const;
  // If the oldest unadmitted connection is older than kMinUnadmittedTime, closes it. Returns false
  // if there is no unadmitted connection. True doesn't mean that one was closed.
  bool CloseOldestUnadmitted();
  // While the pool is full, closes the oldest unadmitted connection that holds at least the average
  // share of it.
  void MakeRoomInPool();
  // If the pool is full, makes room in it. If the budget is used up, begins AwaitRefusals(). Then
  // lets stalled connections read again if they have room. For the admitted connections that remain
  // stalled, calls ResolveStall() after handlers have handled all earlier events.
  void HandleStalled();
  // Waits until handlers have seen the calls in the bytes that gRPC has read of unadmitted
  // connections, then sets calls_seen_. In each round, handlers handle all earlier events. They
  // have seen all calls after kRoundsWithoutRefusals rounds in succession in which num_refused_ is
  // unchanged. `round` is the number of rounds that have passed with num_refused_ == `num_refused`.
  void AwaitRefusals(int64_t num_refused, int round);
  // Refills the budget of unadmitted connections if gRPC has freed the calls of closed connections,
  // or if the budget was used up more than kMaxRefillTime ago. Call it if calls_seen_ is true, or
  // after that time.
  void RefillBudget();
  // Returns whether gRPC may still have calls of closed connections.
  bool AnyClosing();
  // Removes the record of a connection that has ended.
  void RemoveEnded(const ConnectionRef& connection);
  // Removes the records of connections that have ended, and adds credit to the others.
  void Inspect();
  // Resets a connection and removes its record.
  void Close(const ConnectionRef& connection, CloseReason reason);
  void Remove(const Connection& connection);
  std::vector<ConnectionRef> All() const;
  std::vector<ConnectionRef> Unadmitted() const;

  const Limits limits_;
  // The pool of all unadmitted connections. RefillBudget() refills its budget.
  const ReceivePool unadmitted_pool_;
  StalledSockets stalled_;
  bool has_limits_ = true;  // the system enforces limits
  std::vector<Listener> listeners_;
  std::vector<std::string> addresses_;
  AfterEarlierEvents after_earlier_events_;
  std::thread thread_;
  // Stalled connections, by their ids. Only the thread uses this.
  std::set<uint64_t> waiting_;
  // Refused calls so far, of unadmitted and closed connections.
  std::atomic<int64_t> num_refused_ = 0;
  std::atomic<bool> calls_seen_ = false;  // AwaitRefusals() has ended
  // Only the thread uses these two.
  bool refilling_ = false;                      // the budget was used up, and isn't refilled yet
  Connection::Clock::time_point refill_began_;  // when the budget was used up
  std::atomic<bool> stopping_ = false;

  mutable Mutex mu_;
  uint64_t last_id_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<uint64_t, ConnectionRef> connections_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, int64_t> by_host_ ABSL_GUARDED_BY(mu_);
  // gRPC's descriptors of closed unadmitted connections, until gRPC has closed them.
  std::vector<LimitedSocket::Reader> closing_ ABSL_GUARDED_BY(mu_);
  Counts totals_ ABSL_GUARDED_BY(mu_);  // the connections so far
  std::atomic<int> num_unadmitted_ = 0;
};

}  // namespace tensord::server
