// The base class of communicators. It connects the members directly. Over these connections they
// agree on operations, and learn that another member has ended.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/communicator/communicator.h"
#include "tensord/server/communicator/handshake.h"
#include "tensord/server/communicator/peer_mesh.h"

namespace tensord::server {

class MeshCommunicator : public Communicator {
 public:
  const std::string& address() const override { return address_; }
  void Wake() override { mesh_.Wake(); }
  void Cancel(absl::Status status) override { mesh_.Cancel(std::move(status)); }
  absl::Status Connect(absl::Span<const std::string> addresses) override {
    std::vector<std::string> notes;
    TENSORD_RETURN_IF_ERROR(listener_->Connect(addresses, &mesh_, &notes));
    listener_.reset();
    return Begin(notes);
  }
  absl::Status Watch() override { return mesh_.Watch(); }
  absl::StatusOr<std::vector<std::string>> Exchange(absl::string_view word) override {
    return mesh_.Exchange(word);
  }
  void Leave(const absl::Status& why) override { mesh_.Leave(why); }

 protected:
  MeshCommunicator(const GroupPlace& place, std::unique_ptr<GroupListener> listener)
      : mesh_(place.rank, place.size, place.timeout, place.names),
        listener_(std::move(listener)),
        address_(listener_->address()) {}

  // Connect() calls it when all members are connected. `notes` has the note in each member's
  // address, by rank.
  virtual absl::Status Begin(const std::vector<std::string>& notes) = 0;

  PeerMesh& mesh() { return mesh_; }

 private:
  PeerMesh mesh_;
  std::unique_ptr<GroupListener> listener_;  // null once all members are connected
  const std::string address_;
};

}  // namespace tensord::server
