// How the members of a group find each other and show that they belong to it.
//
// Each member listens at an address of its own until all others have come, which takes until the
// group's timeout at most. Of two members the one of higher rank connects to the other. Both then
// prove to know the group's id by an HMAC-SHA256 over random numbers of both, without showing it:
// who can't is hung up on, as is who sends nothing for two seconds, or whose address isn't on the
// network. Nothing more is read of a stranger than the 32 bytes of a greeting, and 32 of a proof.
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

// One member's end. Used by one thread.
class GroupListener {
 public:
  // Listens at once. UNAVAILABLE where that can't be. `note` is told to all other members.
  static absl::StatusOr<std::unique_ptr<GroupListener>> Listen(const CollectiveNetwork& network,
                                                               int rank, int size,
                                                               absl::string_view group_id,
                                                               absl::string_view note);
  ~GroupListener();

  // What the others need: opaque, and of no use to who doesn't know the group's id.
  const std::string& address() const { return address_; }
  const Endpoint& endpoint() const { return endpoint_; }

  // Connects `mesh` with all others. `addresses` by rank; their notes are put into `notes`.
  // INVALID_ARGUMENT where they aren't this group's, PERMISSION_DENIED where one isn't on the
  // network, ABORTED where a member can't be reached, DEADLINE_EXCEEDED where not all have come.
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
  // False where the caller is to be hung up on.
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
