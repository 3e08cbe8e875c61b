// How the members of a group connect and authenticate each other.
//
// Each member listens at its own address until all others have connected, for the group's timeout
// at most. Of two members the one of higher rank connects to the other. Each proves that it knows
// the group's id by an HMAC-SHA256 over random numbers of both; the id itself is not sent. A member
// closes an accepted connection if the peer's address is not on the network. It does the same if
// the proof is wrong or takes longer than two seconds. Before it has checked the proof, it reads at
// most 64 bytes: a greeting and the proof.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/common/util/owned_fd.h"
#include "tensord/server/communicator/network.h"
#include "tensord/server/communicator/peer_mesh.h"

namespace tensord::server {

inline constexpr size_t kGroupIdBytes = 16;

// The listening side of one member. Not thread-safe.
class GroupListener {
 public:
  // Starts to listen. If that fails, returns UNAVAILABLE. address() contains `note`, for the other
  // members.
  static absl::StatusOr<std::unique_ptr<GroupListener>> Listen(const CollectiveNetwork& network,
                                                               int rank, int size,
                                                               absl::string_view group_id,
                                                               absl::string_view note);

  // Returns what the other members pass to Connect(). It is opaque, and useless without the group's
  // id.
  const std::string& address() const { return address_; }
  const Endpoint& endpoint() const { return endpoint_; }

  // Connects `mesh` with all other members. `addresses` are by rank. Sets `notes` to their notes.
  // Errors: INVALID_ARGUMENT if an address is not of this group; PERMISSION_DENIED if one is not on
  // the network; ABORTED if a member can't be reached; DEADLINE_EXCEEDED if not all have connected
  // in time; RESOURCE_EXHAUSTED or UNAVAILABLE if this process can't open another socket.
  absl::Status Connect(absl::Span<const std::string> addresses, PeerMesh* mesh,
                       std::vector<std::string>* notes);

 private:
  struct PendingConnection;

  GroupListener(const CollectiveNetwork& network, int rank, int size, absl::string_view group_id)
      : network_(network), rank_(rank), size_(size), group_id_(group_id) {}

  absl::Status ReadAddress(absl::string_view blob, int rank, Endpoint* endpoint, std::string* note,
                           const std::string& member) const;
  absl::Status Dial(int peer, const Endpoint& endpoint, PeerMesh* mesh,
                    PeerMesh::Clock::time_point deadline) const;
  absl::Status AcceptAll(PeerMesh* mesh, PeerMesh::Clock::time_point deadline);
  // Accepts connections from the network, as long as there is room for them in `pending`.
  absl::Status Accept(std::vector<PendingConnection>* pending) const;
  // Receives and answers what has arrived. Returns false if the handshake has ended: the mesh has
  // taken the connection, or the caller must close the connection.
  bool ContinueHandshake(PendingConnection* connection, PeerMesh* mesh) const;
  // Returns the proof of one side. `side` is 'd' for the member that connects, and 'a' for the
  // member that accepts.
  std::string Proof(char side, absl::string_view greeting, absl::string_view nonce) const;

  const CollectiveNetwork network_;
  const int rank_;
  const int size_;
  const std::string group_id_;
  Endpoint endpoint_;
  std::string address_;
  OwnedFd fd_;
};

}  // namespace tensord::server
