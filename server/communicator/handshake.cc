#include "tensord/server/communicator/handshake.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server {
namespace {

using Clock = PeerMesh::Clock;

constexpr char kMagic[8] = {'t', 'n', 's', 'r', 'd', 'c', 'g', '1'};
constexpr size_t kNonceBytes = 16;
constexpr size_t kProofBytes = 32;
// How long the handshake of an accepted connection may take, and how many may be in progress.
constexpr auto kHandshakeTimeout = std::chrono::seconds(2);
constexpr size_t kMaxPending = 64;
// The send buffer between members on one machine. The bytes in it stay in the caches, which saves a
// fifth of the CPU time. Over a network the system chooses the size.
constexpr int kLocalSendBufferBytes = 256 << 10;
// The limit of connections that wait to be accepted: all other members may connect at once.
constexpr int kBacklog = 1024;
constexpr size_t kMaxNoteBytes = 1024;

// The first message. The member that connects sends it.
struct Greeting {
  char magic[8];
  uint32_t from;
  uint32_t to;
  char nonce[kNonceBytes];

  absl::string_view bytes() const {
    return {reinterpret_cast<const char*>(this), sizeof(Greeting)};
  }
};

// The second message. The member that accepts sends it.
struct Answer {
  char nonce[kNonceBytes];
  char proof[kProofBytes];
};

// GroupListener::address() without the note, which follows it.
struct AddressBlob {
  char magic[8];
  uint32_t rank;
  uint32_t size;
  uint16_t family;
  uint16_t port;
  uint8_t address[16];
  char tag[kProofBytes];
};

std::string Hmac(absl::string_view key, absl::string_view message) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(message.data()), message.size(), digest, &bytes);
  return {reinterpret_cast<const char*>(digest), bytes};
}

bool SameSecret(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void FillNonce(char (&nonce)[kNonceBytes]) {
  RAND_bytes(reinterpret_cast<unsigned char*>(nonce), sizeof(nonce));
}

// Returns whether both ends are on this machine.
bool IsLocal(int fd) {
  sockaddr_storage own, other;
  auto* own_address = reinterpret_cast<sockaddr*>(&own);
  auto* other_address = reinterpret_cast<sockaddr*>(&other);
  socklen_t own_bytes = sizeof(own), other_bytes = sizeof(other);
  if (getsockname(fd, own_address, &own_bytes) != 0) return false;
  if (getpeername(fd, other_address, &other_bytes) != 0) return false;
  const absl::StatusOr<Endpoint> here = Endpoint::From(own_address);
  const absl::StatusOr<Endpoint> there = Endpoint::From(other_address);
  if (!here.ok() || !there.ok()) return false;
  const bool loopback = here->family == AF_INET && here->address[0] == IN_LOOPBACKNET;
  return loopback || here->address == there->address;
}

void TuneConnection(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const int bytes = kLocalSendBufferBytes;
  if (IsLocal(fd)) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

// Blocks until `fd` has any of `events`. At the deadline, returns DEADLINE_EXCEEDED.
absl::Status AwaitEvent(PeerMesh* mesh, int fd, int events, Clock::time_point deadline) {
  std::vector<pollfd> fds = {{fd, static_cast<short>(events), 0}};
  do {
    TENSORD_RETURN_IF_ERROR(mesh->Poll(&fds, deadline));
    if (fds[0].revents != 0) return absl::OkStatus();
  } while (Clock::now() < deadline);
  return absl::DeadlineExceededError("no answer in time");
}

absl::Status SendAll(PeerMesh* mesh, int fd, absl::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(sent);
    } else if (errno == EAGAIN || errno == EINTR) {
      TENSORD_RETURN_IF_ERROR(AwaitEvent(mesh, fd, POLLOUT, deadline));
    } else {
      return absl::AbortedError(strerror(errno));
    }
  }
  return absl::OkStatus();
}

absl::Status ReceiveAll(PeerMesh* mesh, int fd, void* data, size_t bytes,
                        Clock::time_point deadline) {
  char* into = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t count = recv(fd, into, bytes, MSG_DONTWAIT);
    if (count > 0) {
      into += count;
      bytes -= count;
    } else if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
      TENSORD_RETURN_IF_ERROR(AwaitEvent(mesh, fd, POLLIN, deadline));
    } else {
      return absl::AbortedError(count == 0 ? "it closed the connection" : strerror(errno));
    }
  }
  return absl::OkStatus();
}

}  // namespace

// An accepted connection whose peer hasn't proved yet that it is a member.
struct GroupListener::PendingConnection {
  OwnedFd fd;
  Clock::time_point deadline;
  Greeting greeting = {};
  char proof[kProofBytes] = {};
  size_t received = 0;
  std::string expected;  // the right proof; empty until the greeting was answered
};

absl::StatusOr<std::unique_ptr<GroupListener>> GroupListener::Listen(
    const CollectiveNetwork& network, int rank, int size, absl::string_view group_id,
    absl::string_view note) {
  std::unique_ptr<GroupListener> listener(new GroupListener(network, rank, size, group_id));
  sockaddr_storage storage;
  socklen_t length = network.address().ToSockaddr(&storage);
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  listener->fd_ = OwnedFd(socket(storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int fd = listener->fd_.get();
  if (fd < 0 || bind(fd, address, length) != 0 || listen(fd, kBacklog) != 0 ||
      getsockname(fd, address, &length) != 0) {
    return absl::UnavailableError(absl::StrCat("a member of a group can't listen at ",
                                               network.ToString(), ": ", strerror(errno)));
  }
  TENSORD_ASSIGN_OR_RETURN(listener->endpoint_, Endpoint::From(address));
  const Endpoint& endpoint = listener->endpoint_;
  AddressBlob blob = {};
  std::memcpy(blob.magic, kMagic, sizeof(kMagic));
  blob.rank = rank;
  blob.size = size;
  blob.family = endpoint.family == AF_INET ? 4 : 6;
  blob.port = endpoint.port;
  std::copy(endpoint.address.begin(), endpoint.address.end(), blob.address);
  const absl::string_view head(reinterpret_cast<const char*>(&blob), offsetof(AddressBlob, tag));
  const std::string tag = Hmac(group_id, absl::StrCat("address", head, note));
  std::copy(tag.begin(), tag.end(), blob.tag);
  listener->address_ =
      absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&blob), sizeof(blob)), note);
  return listener;
}

std::string GroupListener::Proof(char side, absl::string_view greeting,
                                 absl::string_view nonce) const {
  return Hmac(group_id_, absl::StrCat(absl::string_view(&side, 1), greeting, nonce));
}

absl::Status GroupListener::ReadAddress(absl::string_view blob, int rank, Endpoint* endpoint,
                                        std::string* note, const std::string& member) const {
  AddressBlob head;
  const auto refuse = [&member](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("the address of ", member, " ", why));
  };
  if (blob.size() < sizeof(head) || blob.size() > sizeof(head) + kMaxNoteBytes) {
    return refuse("was not returned by JoinGroup");
  }
  std::memcpy(&head, blob.data(), sizeof(head));
  *note = std::string(blob.substr(sizeof(head)));
  const std::string tag =
      Hmac(group_id_, absl::StrCat("address", blob.substr(0, offsetof(AddressBlob, tag)), *note));
  if (!SameSecret(tag, {head.tag, sizeof(head.tag)})) {
    return refuse("belongs to another group: its group_id differs");
  }
  if (head.rank != static_cast<uint32_t>(rank) || head.size != static_cast<uint32_t>(size_)) {
    return refuse(absl::StrCat("is that of rank ", head.rank, " of ", head.size));
  }
  endpoint->family = head.family == 4 ? AF_INET : AF_INET6;
  endpoint->port = head.port;
  std::copy(std::begin(head.address), std::end(head.address), endpoint->address.begin());
  if (network_.Contains(*endpoint)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      member, " is at ", endpoint->ToString(), ", which isn't on the network ", network_.ToString(),
      " that this server allows for collective operations (tensord --collectives)"));
}

absl::Status GroupListener::Connect(absl::Span<const std::string> addresses, PeerMesh* mesh,
                                    std::vector<std::string>* notes) {
  const Clock::time_point deadline = Clock::now() + mesh->timeout();
  if (static_cast<int>(addresses.size()) != size_) {
    return absl::InvalidArgumentError(absl::StrCat("the group has ", size_, " members, but ",
                                                   addresses.size(), " addresses are given"));
  }
  std::vector<Endpoint> endpoints(size_);
  notes->resize(size_);
  for (int peer = 0; peer < size_; ++peer) {
    TENSORD_RETURN_IF_ERROR(ReadAddress(addresses[peer], peer, &endpoints[peer], &(*notes)[peer],
                                        mesh->names().Describe(peer)));
  }
  // There is no deadlock: a member first waits for lower ranks only, and rank 0 for none.
  for (int peer = 0; peer < rank_; ++peer) {
    const absl::Status connected = Dial(peer, endpoints[peer], mesh, deadline);
    if (connected.ok()) continue;
    return absl::Status(
        connected.code(),
        absl::StrCat(mesh->names().Describe(peer), " of the group at ", endpoints[peer].ToString(),
                     " can't be reached: ", connected.message()));
  }
  TENSORD_RETURN_IF_ERROR(AcceptAll(mesh, deadline));
  fd_ = OwnedFd();
  return absl::OkStatus();
}

absl::Status GroupListener::Dial(int peer, const Endpoint& endpoint, PeerMesh* mesh,
                                 Clock::time_point deadline) const {
  sockaddr_storage storage;
  const socklen_t length = endpoint.ToSockaddr(&storage);
  OwnedFd fd(socket(storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return absl::UnavailableError(strerror(errno));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&storage), length) != 0) {
    if (errno != EINPROGRESS) return absl::AbortedError(strerror(errno));
    TENSORD_RETURN_IF_ERROR(AwaitEvent(mesh, fd.get(), POLLOUT, deadline));
    int error = 0;
    socklen_t error_bytes = sizeof(error);
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &error_bytes);
    if (error != 0) return absl::AbortedError(strerror(error));
  }
  TuneConnection(fd.get());
  Greeting greeting = {};
  std::memcpy(greeting.magic, kMagic, sizeof(kMagic));
  greeting.from = rank_;
  greeting.to = peer;
  FillNonce(greeting.nonce);
  TENSORD_RETURN_IF_ERROR(SendAll(mesh, fd.get(), greeting.bytes(), deadline));
  Answer answer;
  TENSORD_RETURN_IF_ERROR(ReceiveAll(mesh, fd.get(), &answer, sizeof(answer), deadline));
  const absl::string_view nonce(answer.nonce, sizeof(answer.nonce));
  if (!SameSecret(Proof('a', greeting.bytes(), nonce), {answer.proof, sizeof(answer.proof)})) {
    return absl::AbortedError("the process at that address isn't a member of the group");
  }
  TENSORD_RETURN_IF_ERROR(SendAll(mesh, fd.get(), Proof('d', greeting.bytes(), nonce), deadline));
  mesh->Adopt(peer, fd.Release());
  return absl::OkStatus();
}

absl::Status GroupListener::AcceptAll(PeerMesh* mesh, Clock::time_point deadline) {
  std::vector<PendingConnection> pending;
  for (;;) {
    std::vector<int> missing;
    for (int peer = rank_ + 1; peer < size_; ++peer) {
      if (!mesh->HasPeer(peer)) missing.push_back(peer);
    }
    if (missing.empty()) return absl::OkStatus();
    if (Clock::now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          mesh->names().Describe(rank_), " waited ", mesh->timeout().count(), " ms for ",
          mesh->names().Describe(missing), " to connect; make another group to continue"));
    }
    const int events = pending.size() < kMaxPending ? POLLIN : 0;
    std::vector<pollfd> fds = {{fd_.get(), static_cast<short>(events), 0}};
    Clock::time_point wake = deadline;
    for (const PendingConnection& connection : pending) {
      fds.push_back({connection.fd.get(), POLLIN, 0});
      wake = std::min(wake, connection.deadline);
    }
    TENSORD_RETURN_IF_ERROR(mesh->Poll(&fds, wake));
    std::vector<PendingConnection> kept;
    for (size_t i = 0; i < pending.size(); ++i) {
      const bool keep = fds[i + 1].revents == 0 ? Clock::now() < pending[i].deadline
                                                : ContinueHandshake(&pending[i], mesh);
      if (keep) kept.push_back(std::move(pending[i]));
    }
    pending = std::move(kept);
    if (fds[0].revents != 0) TENSORD_RETURN_IF_ERROR(Accept(&pending));
  }
}

absl::Status GroupListener::Accept(std::vector<PendingConnection>* pending) const {
  while (pending->size() < kMaxPending) {
    sockaddr_storage storage;
    socklen_t length = sizeof(storage);
    auto* address = reinterpret_cast<sockaddr*>(&storage);
    OwnedFd fd(accept4(fd_.get(), address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    const bool out_of_resources =
        errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (fd.get() < 0 && out_of_resources) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a member of a group can't accept connections: ", strerror(errno)));
    }
    if (fd.get() < 0) return absl::OkStatus();
    const absl::StatusOr<Endpoint> from = Endpoint::From(address);
    if (!from.ok() || !network_.Contains(*from)) continue;
    TuneConnection(fd.get());
    pending->push_back({std::move(fd), Clock::now() + kHandshakeTimeout});
  }
  return absl::OkStatus();
}

bool GroupListener::ContinueHandshake(PendingConnection* connection, PeerMesh* mesh) const {
  const bool greeted = !connection->expected.empty();
  char* into = greeted ? connection->proof : reinterpret_cast<char*>(&connection->greeting);
  const size_t wanted = greeted ? sizeof(connection->proof) : sizeof(connection->greeting);
  const ssize_t count = recv(connection->fd.get(), into + connection->received,
                             wanted - connection->received, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (count <= 0) return false;
  connection->received += count;
  if (connection->received < wanted) return true;
  connection->received = 0;
  const Greeting& greeting = connection->greeting;
  if (greeted) {
    if (!SameSecret(connection->expected, {connection->proof, sizeof(connection->proof)}))
      return false;
    if (mesh->HasPeer(greeting.from)) return false;
    mesh->Adopt(greeting.from, connection->fd.Release());
    return false;
  }
  if (std::memcmp(greeting.magic, kMagic, sizeof(kMagic)) != 0 ||
      greeting.to != static_cast<uint32_t>(rank_) ||
      greeting.from <= static_cast<uint32_t>(rank_) ||
      greeting.from >= static_cast<uint32_t>(size_)) {
    return false;
  }
  Answer answer;
  FillNonce(answer.nonce);
  const absl::string_view nonce(answer.nonce, sizeof(answer.nonce));
  const std::string proof = Proof('a', greeting.bytes(), nonce);
  std::copy(proof.begin(), proof.end(), answer.proof);
  connection->expected = Proof('d', greeting.bytes(), nonce);
  // The answer fits into the empty buffer of any connection.
  return send(connection->fd.get(), &answer, sizeof(answer), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(sizeof(answer));
}

}  // namespace tensord::server
