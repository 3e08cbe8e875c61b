// Gloo's collective operations over a PeerMesh.
//
// Gloo brings a TCP transport of its own, which isn't used: it takes the first connection to each
// of its ports for the peer's, believes what comes over it, and what it finds wrong there it throws
// on a thread where nobody can catch it, which ends the process.
#pragma once

#include <gloo/context.h>

#include <memory>

#include "absl/status/status.h"
#include "tensord/server/collective/peer_mesh.h"

namespace tensord::server {

// What Gloo's algorithms work with. They throw GlooError where the mesh fails. `mesh` outlives it.
std::shared_ptr<gloo::Context> MakeGlooContext(PeerMesh* mesh);

// The mesh's error on its way through Gloo.
class GlooError final : public std::exception {
 public:
  explicit GlooError(absl::Status status) : status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }
  const char* what() const noexcept override { return "the group has failed"; }

 private:
  absl::Status status_;
};

}  // namespace tensord::server
