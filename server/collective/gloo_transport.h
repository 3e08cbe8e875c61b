// Gloo's collective operations over a PeerMesh.
//
// Gloo's own TCP transport is not used. It assumes that the first connection to each of its ports
// is the peer's, and trusts the lengths that it receives. It throws errors on a thread where no
// code can catch them, so an error ends the process.
#pragma once

#include <gloo/context.h>

#include <memory>

#include "absl/status/status.h"
#include "tensord/server/communicator/peer_mesh.h"

namespace tensord::server {

// Returns the context for Gloo's algorithms. If the mesh fails, they throw GlooError. `mesh` must
// outlive the context.
std::shared_ptr<gloo::Context> MakeGlooContext(PeerMesh* mesh);

// An error of the mesh, as an exception that passes through Gloo.
class GlooError final : public std::exception {
 public:
  explicit GlooError(absl::Status status) : status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }
  const char* what() const noexcept override { return "the group has failed"; }

 private:
  absl::Status status_;
};

}  // namespace tensord::server
