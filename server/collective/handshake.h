// How the members of a group connect and authenticate each other.
//
// Each member listens at its own address until all others have connected, for the group's timeout
// at most. Of two members the one of higher rank connects to the other. Each proves that it knows
// the group's id by an HMAC-SHA256 over random numbers of both; the id itself is not sent. A member
// closes a connection if the proof is wrong, if the peer sends nothing for two seconds, or if its
// address is not on the network. Before that it reads 64 bytes at most: a greeting and a proof.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/server/collective/network.h"
#include "tensord/server/collective/peer_mesh.h"

namespace tensord::server {

inline constexpr size_t kGroupIdBytes = 16;

// The listening side of one member. Used by one thread.
class GroupListener {
 public:
  // Starts to listen. If that fails, returns UNAVAILABLE. The other members get `note` with the
  // address.
  static absl::StatusOr<std::unique_ptr<GroupListener>> Listen(const CollectiveNetwork& network,
                                                               int rank, int size,
                                                               absl::string_view group_id,
                                                               absl::string_view note);
  ~GroupListener();

  // What the other members need to connect. Opaque, and useless without the group's id.
  const std::string& address() const { return address_; }
  const Endpoint& endpoint() const { return endpoint_; }

  // Connects `mesh` with all other members. `addresses` are by rank; puts their notes into `notes`.
  // Errors: INVALID_ARGUMENT if an address is not of this group; PERMISSION_DENIED if one is not on
  // the network; ABORTED if a member can't be reached; DEADLINE_EXCEEDED if not all have connected
  // in time.
  absl::Status Connect(absl::Span<const std::string> addresses, PeerMesh* mesh,
                       std::vector<std::string>* notes);

 private:
  struct Caller;

  GroupListener(const CollectiveNetwork& network, int rank, int size, absl::string_view group_id)
      : network_(network), rank_(rank), size_(size), group_id_(group_id) {}

  absl::Status ReadAddress(absl::string_view blob, int rank, Endpoint* endpoint, std::string* note,
                           const std::string& who) const;
  absl::Status Dial(int peer, const Endpoint& endpoint, PeerMesh* mesh,
                    PeerMesh::Clock::time_point deadline) const;
  absl::Status AcceptAll(PeerMesh* mesh, PeerMesh::Clock::time_point deadline);
  void TakeCallers(std::vector<Caller>* callers) const;
  // Returns false if the connection must be closed.
  bool Serve(Caller* caller, PeerMesh* mesh) const;
  std::string Proof(char side, absl::string_view greeting, absl::string_view nonce) const;

  const CollectiveNetwork network_;
  const int rank_;
  const int size_;
  const std::string group_id_;
  Endpoint endpoint_;
  std::string address_;
  int fd_ = -1;
};

}  // namespace tensord::server
