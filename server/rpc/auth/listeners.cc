#include "tensord/server/rpc/auth/listeners.h"

#include <arpa/inet.h>
#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/address.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/log.h"
#include "tensord/server/rpc/auth/descriptor_limit.h"

namespace tensord::server {
namespace {

// The most that gRPC reads from all unadmitted connections together.
constexpr int64_t kUnadmittedPoolBytes = 3 << 20;
// How many of these bytes gRPC reads before handlers have seen the calls in them. A call that is
// cancelled at once takes 30 bytes on the wire and 3.4 kB of gRPC's memory, even after its
// connection has been closed.
constexpr int64_t kUnseenBytes = 128 << 10;
// gRPC passes one call of a method to a queue at a time, and some calls go from queue to queue. So
// handlers have seen all calls only after they have handled all earlier events this many times in
// succession and no call was refused meanwhile.
constexpr int kRoundsWithoutRefusals = 2;
// After this time, gRPC reads on even if handlers haven't seen all calls.
constexpr auto kMaxRefillTime = std::chrono::seconds(5);
// The size of everything but the elements in the largest message.
constexpr int64_t kRequestOverheadBytes = 64 << 10;
// SO_RCVBUF of an unadmitted connection. The kernel doubles this value.
constexpr int kReceiveBufferBytes = 64 << 10;
constexpr int kMaxUnadmitted = 1024;
// The memory of an admitted connection that is idle: gRPC's transport, its HPACK tables, the
// smallest read buffer (ReceivePool::kMinReadBytes), and our objects. Measured without the buffer:
// 18 to 30 KiB, with TLS 82 to 104 KiB, with an empty and a full HPACK table; with it, 63 KiB.
constexpr int64_t kConnectionBytes = 64 << 10;
constexpr int64_t kTlsConnectionBytes = 144 << 10;
// If a caller has reached its limit of host memory, it may still have this many connections. So it
// can delete tensors and close sessions.
constexpr int64_t kMaxConnectionsPastLimit = 8;
// To make room for a new connection, the server closes no unadmitted connection that is younger
// than this.
constexpr auto kMinUnadmittedTime = std::chrono::milliseconds(200);
// The interval at which the server tries to accept again while descriptors run short, and checks
// whether gRPC has closed sockets.
constexpr int kRetryIntervalMs = 5;
constexpr int kMaxAcceptedAtOnce = 64;
// The kernel ends a connection if the peer acknowledges nothing for this time.
constexpr int kUserTimeoutMs = 20000;

// Returns "10.0.0.1" or "[fd00::1]".
std::string HostOf(const sockaddr_storage& peer) {
  char text[INET6_ADDRSTRLEN] = {};
  if (peer.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(peer).sin_addr, text, sizeof(text));
    return text;
  }
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) {
    inet_ntop(AF_INET, v6.s6_addr + 12, text, sizeof(text));
    return text;
  }
  inet_ntop(AF_INET6, &v6, text, sizeof(text));
  return absl::StrCat("[", text, "]");
}

uint16_t PortOf(const sockaddr_storage& peer) {
  return ntohs(peer.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(peer).sin_port
                                         : reinterpret_cast<const sockaddr_in6&>(peer).sin6_port);
}

void SetTcpOptions(int fd) {
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kReceiveBufferBytes, sizeof(kReceiveBufferBytes));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUserTimeoutMs, sizeof(kUserTimeoutMs));
}

}  // namespace

Listeners::Listeners(const Limits& limits)
    : limits_(limits),
      unadmitted_pool_{.held = std::make_shared<Budget>(kUnadmittedPoolBytes),
                       .budget_bytes = std::make_shared<std::atomic<int64_t>>(kUnseenBytes)} {}

Listeners::~Listeners() { Stop(); }

absl::Status Listeners::Listen(const std::string& address, grpc::ServerBuilder* builder,
                               std::shared_ptr<grpc::ServerCredentials> credentials) {
  std::vector<ListeningSocket> sockets;
  std::string bound;
  const absl::Status status = ListenAt(address, &sockets, &bound);
  // Stop() closes these sockets, also after an error.
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  for (ListeningSocket& socket : sockets) {
    listeners_.push_back({std::move(socket), builder->experimental().AddExternalConnectionAcceptor(
                                                 Type::FROM_FD, credentials)});
  }
  if (status.ok()) addresses_.push_back(std::move(bound));
  return status;
}

absl::Status Listeners::Start(AfterEarlierEvents after_earlier_events) {
  TENSORD_RETURN_IF_ERROR(CheckDescriptorsForConnections());
  after_earlier_events_ = std::move(after_earlier_events);
  const absl::Status supported = LimitedSocket::CheckSupport();
  has_limits_ = supported.ok();
  if (!has_limits_) {
    LogLine(absl::StrCat(
        "WARNING: this system can't limit how many bytes a connection makes the server hold: ",
        supported.message()));
  }
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void Listeners::Stop() {
  stopping_ = true;
  if (thread_.joinable()) {
    stalled_.Add(0);  // wakes the thread
    thread_.join();
  }
  for (const Listener& listener : listeners_) {
    close(listener.socket.fd);
    if (!listener.socket.unix_path.empty()) unlink(listener.socket.unix_path.c_str());
  }
  listeners_.clear();
  for (const ConnectionRef& connection : All()) {
    if (connection->admitted()) {
      connection->RemoveLimit();
    } else {
      connection->Reset();
      Remove(*connection);
    }
  }
}

void Listeners::Run() {
  std::vector<pollfd> ready = {{stalled_.event_fd(), POLLIN, 0}};
  for (const Listener& listener : listeners_) ready.push_back({listener.socket.fd, POLLIN, 0});
  bool has_descriptors = true;
  Connection::Clock::time_point inspected;
  constexpr auto kIntervalMs = static_cast<int>(Connection::kInspectInterval.count());
  while (!stopping_) {
    // While no descriptors are free, connections wait in the kernel's backlog.
    const size_t watched = has_descriptors ? ready.size() : 1;
    ready.front().revents = 0;
    poll(ready.data(), watched, has_descriptors && !calls_seen_ ? kIntervalMs : kRetryIntervalMs);
    if (stopping_) return;
    if (calls_seen_) RefillBudget();
    if ((ready.front().revents & POLLIN) != 0) HandleStalled();
    has_descriptors = true;
    for (const Listener& listener : listeners_) {
      for (int i = 0; i < kMaxAcceptedAtOnce && Accept(listener); ++i) {
      }
      has_descriptors = has_descriptors && errno != EMFILE && errno != ENFILE;
    }
    const auto now = Connection::Clock::now();
    if (now - inspected < Connection::kInspectInterval) continue;
    inspected = now;
    Inspect();
  }
}

bool Listeners::HasRoom() const {
  if (num_unadmitted_ >= kMaxUnadmitted) return false;
  {
    MutexLock lock(&mu_);
    const auto num_connections = static_cast<int64_t>(connections_.size());
    if (limits_.max_connections != 0 && num_connections >= limits_.max_connections) return false;
  }
  return DescriptorsForConnections() > kDescriptorsPerConnection;
}

bool Listeners::Accept(const Listener& listener) {
  pollfd waiting = {listener.socket.fd, POLLIN, 0};
  if (poll(&waiting, 1, 0) <= 0) {
    errno = EAGAIN;
    return false;
  }
  const bool is_unix = !listener.socket.unix_path.empty();
  // Unix sockets use the reserved descriptors, too: only users of this machine connect to them.
  bool has_room = is_unix || HasRoom();
  if (!has_room && CloseOldestUnadmitted()) {
    has_room = HasRoom();
    if (!has_room) {
      errno = EMFILE;  // the descriptor is free only after gRPC has closed the connection
      return false;
    }
  }
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  const int fd = accept4(listener.socket.fd, reinterpret_cast<sockaddr*>(&peer), &size,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return false;
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.listener_fd = listener.socket.fd;
  parameters.fd = fd;
  const auto hand_over = [&] { listener.acceptor->HandleNewConnection(&parameters); };
  if (is_unix || (has_room && !has_limits_)) {
    {
      MutexLock lock(&mu_);
      ++totals_.accepted;
    }
    hand_over();
  } else {
    SetTcpOptions(fd);
    if (!has_room) CountRefused(RefusalReason::kNoRoom);
    const ConnectionRef connection = has_room ? AddConnection(fd, peer) : nullptr;
    if (connection == nullptr) {
      close(fd);
    } else {
      RunWithPeerName(connection->id(), hand_over);
    }
  }
  errno = 0;
  return true;
}

ConnectionRef Listeners::AddConnection(int fd, const sockaddr_storage& peer) {
  const std::string host = HostOf(peer);
  const std::string address = absl::StrCat(host, ":", PortOf(peer));
  MutexLock lock(&mu_);
  const auto from_host = by_host_.find(host);
  const int64_t num_from_host = from_host == by_host_.end() ? 0 : from_host->second;
  const int64_t limit = limits_.max_connections_per_address;
  if (limit != 0 && num_from_host >= limit) {
    ++totals_.refused[static_cast<size_t>(RefusalReason::kAddressLimit)];
    return nullptr;
  }
  LimitedSocket::Options options = {.limit_bytes = Connection::kUnadmittedWindow,
                                    .pool = unadmitted_pool_,
                                    .stalled = &stalled_,
                                    .id = ++last_id_};
  std::unique_ptr<LimitedSocket> socket = LimitedSocket::Make(fd, std::move(options));
  if (socket == nullptr) {
    ++totals_.refused[static_cast<size_t>(RefusalReason::kSystem)];
    return nullptr;
  }
  ++totals_.accepted;
  auto connection = std::make_shared<Connection>(last_id_, host, address, limits_.max_message_bytes,
                                                 std::move(socket), &stalled_);
  connections_.emplace(last_id_, connection);
  by_host_[host] = num_from_host + 1;
  ++num_unadmitted_;
  return connection;
}

void Listeners::CountRefused(RefusalReason reason) {
  MutexLock lock(&mu_);
  ++totals_.refused[static_cast<size_t>(reason)];
}

Listeners::Counts Listeners::counts() const {
  Counts counts;
  {
    MutexLock lock(&mu_);
    counts = totals_;
  }
  for (const ConnectionRef& connection : All()) {
    ++(connection->admitted() ? counts.admitted : counts.unadmitted);
  }
  return counts;
}

std::vector<ConnectionRef> Listeners::All() const {
  MutexLock lock(&mu_);
  std::vector<ConnectionRef> all;
  all.reserve(connections_.size());
  for (const auto& [id, connection] : connections_) all.push_back(connection);
  return all;
}

std::vector<ConnectionRef> Listeners::Unadmitted() const {
  std::vector<ConnectionRef> unadmitted = All();
  std::erase_if(unadmitted, [](const ConnectionRef& each) { return each->admitted(); });
  // A connection's id grows with the time when it was accepted.
  std::sort(unadmitted.begin(), unadmitted.end(),
            [](const ConnectionRef& a, const ConnectionRef& b) { return a->id() < b->id(); });
  return unadmitted;
}

bool Listeners::CloseOldestUnadmitted() {
  const std::vector<ConnectionRef> unadmitted = Unadmitted();
  if (unadmitted.empty()) return false;
  const ConnectionRef& oldest = unadmitted.front();
  if (Connection::Clock::now() - oldest->accepted_at() >= kMinUnadmittedTime) {
    Close(oldest, CloseReason::kNoRoom);
  }
  return true;
}

void Listeners::MakeRoomInPool() {
  std::vector<ConnectionRef> unadmitted = Unadmitted();
  while (unadmitted_pool_.full()) {
    // Closes the oldest and not the largest connection: a legitimate client that has just connected
    // may have sent large headers or certificates.
    const int64_t share = unadmitted_pool_.held->used() /
                          std::max<int64_t>(static_cast<int64_t>(unadmitted.size()), 1);
    const auto oldest =
        std::find_if(unadmitted.begin(), unadmitted.end(),
                     [share](const ConnectionRef& each) { return each->pool_bytes() >= share; });
    if (oldest == unadmitted.end()) break;
    Close(*oldest, CloseReason::kPoolFull);
    unadmitted.erase(oldest);
  }
}

void Listeners::HandleStalled() {
  for (const uint64_t id : stalled_.TakeAll()) waiting_.insert(id);
  std::vector<ConnectionRef> stalled;
  {
    MutexLock lock(&mu_);
    for (const uint64_t id : std::exchange(waiting_, {})) {
      const auto it = connections_.find(id);
      if (it != connections_.end()) stalled.push_back(it->second);
    }
  }
  if (unadmitted_pool_.full()) MakeRoomInPool();
  if (*unadmitted_pool_.budget_bytes <= 0 && !std::exchange(refilling_, true)) {
    refill_began_ = Connection::Clock::now();
    AwaitRefusals(num_refused_, 0);
  }
  // The fewer bytes gRPC has read of an unadmitted connection, the earlier it reads more. Thus
  // connections that send many bytes don't delay new ones.
  std::multimap<int64_t, ConnectionRef> by_received;
  for (const ConnectionRef& connection : stalled) {
    by_received.emplace(connection->admitted() ? 0 : connection->received_bytes(), connection);
  }
  std::vector<ConnectionRef> unresolved;
  for (const auto& [bytes, connection] : by_received) {
    connection->Resume();
    if (!connection->stalled()) continue;
    waiting_.insert(connection->id());
    if (connection->admitted() && connection->BeginRound()) unresolved.push_back(connection);
  }
  if (unresolved.empty()) return;
  after_earlier_events_([this, unresolved = std::move(unresolved)] {
    for (const ConnectionRef& connection : unresolved) {
      if (connection->ResolveStall()) stalled_.Add(connection->id());
    }
  });
}

void Listeners::AwaitRefusals(int64_t num_refused, int round) {
  after_earlier_events_([this, num_refused, round] {
    const int64_t num_refused_now = num_refused_;
    const int next_round = num_refused_now == num_refused ? round + 1 : 0;
    if (next_round < kRoundsWithoutRefusals && !stopping_) {
      AwaitRefusals(num_refused_now, next_round);
    } else {
      calls_seen_ = true;
      stalled_.Add(0);  // wakes the thread
    }
  });
}

void Listeners::RefillBudget() {
  for (const ConnectionRef& connection : Unadmitted()) {
    if (connection->ended()) RemoveEnded(connection);
  }
  // A handler that blocks must not keep new connections out.
  const bool late = Connection::Clock::now() - refill_began_ > kMaxRefillTime;
  if (!late && AnyClosing()) return;
  *unadmitted_pool_.budget_bytes = kUnseenBytes;
  calls_seen_ = refilling_ = false;
  HandleStalled();
}

bool Listeners::AnyClosing() {
  MutexLock lock(&mu_);
  std::erase_if(closing_, [](const LimitedSocket::Reader& reader) { return reader.closed(); });
  return !closing_.empty();
}

void Listeners::Inspect() {
  std::set<BudgetRef> relieved;
  for (const ConnectionRef& connection : All()) {
    const Connection::Inspection result = connection->Inspect(&relieved);
    if (result == Connection::Inspection::kWindowFull) Close(connection, CloseReason::kWindowFull);
    if (result == Connection::Inspection::kEnded) RemoveEnded(connection);
  }
  AnyClosing();
  if (refilling_ && Connection::Clock::now() - refill_began_ > kMaxRefillTime) RefillBudget();
  HandleStalled();
}

void Listeners::RemoveEnded(const ConnectionRef& connection) {
  // A client that has closed its end reads no answers, so gRPC needn't read its first call.
  if (!connection->admitted()) connection->Reset();
  Remove(*connection);
}

void Listeners::Close(const ConnectionRef& connection, CloseReason reason) {
  {
    MutexLock lock(&mu_);
    ++totals_.closed[static_cast<size_t>(reason)];
  }
  connection->Reset();
  Remove(*connection);
}

void Listeners::Remove(const Connection& connection) {
  MutexLock lock(&mu_);
  if (connections_.erase(connection.id()) == 0) return;
  if (!connection.admitted()) {
    --num_unadmitted_;
    closing_.push_back(connection.reader());
  }
  const auto from_host = by_host_.find(connection.host());
  if (--from_host->second == 0) by_host_.erase(from_host);
}

ConnectionRef Listeners::Find(absl::string_view peer) const {
  const uint64_t id = ParsePeerName(peer);
  if (id == 0) return nullptr;
  MutexLock lock(&mu_);
  const auto it = connections_.find(id);
  return it == connections_.end() ? nullptr : it->second;
}

absl::Status Listeners::CheckMessageSize(size_t bytes) const {
  const int64_t max_bytes = limits_.max_message_bytes;
  if (static_cast<int64_t>(bytes) <= max_bytes + kRequestOverheadBytes) return absl::OkStatus();
  return MessageTooLarge(max_bytes);
}

namespace {

bool UsesTls(const grpc::ServerContext& call) {
  const std::shared_ptr<const grpc::AuthContext> context = call.auth_context();
  if (context == nullptr) return false;
  const std::vector<grpc::string_ref> type =
      context->FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  return !type.empty() && type.front() == GRPC_SSL_TRANSPORT_SECURITY_TYPE;
}

// Charges a connection to its principal.
absl::StatusOr<Connection::Charges> ChargeConnection(const PrincipalRef& principal,
                                                     const grpc::ServerContext& call) {
  Connection::Charges charges;
  TENSORD_ASSIGN_OR_RETURN(charges.slot, ChargeTo(principal, PrincipalLimit::kConnections));
  charges.memory = Charge(BudgetOf(principal, PrincipalLimit::kHostBytes));
  const int64_t bytes = UsesTls(call) ? kTlsConnectionBytes : kConnectionBytes;
  if (principal->budget(PrincipalLimit::kConnections).used() <= kMaxConnectionsPastLimit) {
    charges.memory.AddPastLimit(bytes);
  } else {
    TENSORD_RETURN_IF_ERROR(charges.memory.Add(bytes));
  }
  return charges;
}

}  // namespace

absl::Status Listeners::AddAdmitted(const ConnectionRef& connection, Connection::Call* call,
                                    const grpc::ServerContext& context, int64_t headers_bytes,
                                    const PrincipalRef& principal) {
  // gRPC enforces its limit only after the client has acknowledged it.
  if (connection->has_max_calls()) {
    return absl::ResourceExhaustedError(absl::StrCat("the connection has ",
                                                     Connection::kMaxOpenCalls,
                                                     " open calls; wait until some have ended"));
  }
  Connection::Charges charges;
  if (!connection->admitted()) {
    absl::StatusOr<Connection::Charges> charged = ChargeConnection(principal, context);
    // Another of its calls may have been admitted meanwhile.
    if (!charged.ok() && !connection->admitted()) return charged.status();
    if (charged.ok()) charges = *std::move(charged);
  }
  const BudgetRef requests = BudgetOf(principal, PrincipalLimit::kRequestBytes);
  const ReceivePool pool = {.held = requests,
                            .reserved_bytes = Connection::kMinWindow,
                            .buffer_bytes = requests->limit() / 4,
                            .sockets = BudgetOf(principal, PrincipalLimit::kConnections)};
  MutexLock lock(&mu_);  // Remove() counts the connection by its state
  const bool is_first = connection->AddAdmitted(call, headers_bytes, pool, std::move(charges));
  if (is_first && connections_.contains(connection->id())) --num_unadmitted_;
  return absl::OkStatus();
}

void Listeners::AddRefused(absl::string_view peer, const ConnectionRef& connection,
                           Connection::Call* call, bool at_limit) {
  // Calls of closed connections count, too: gRPC still passes them to handlers.
  const bool is_tcp = ParsePeerName(peer) != 0;
  if (is_tcp && (connection == nullptr || !connection->admitted())) ++num_refused_;
  if (connection == nullptr) return;
  if (!connection->AddRefused(call, at_limit)) Close(connection, CloseReason::kRejectedCalls);
}

void Listeners::CountCancelled(const ConnectionRef& connection, bool has_deadline) {
  if (!connection->CountCancelled(has_deadline)) Close(connection, CloseReason::kRejectedCalls);
}

}  // namespace tensord::server
