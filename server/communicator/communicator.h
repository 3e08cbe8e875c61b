// The interface to a library that runs a group's operations: Gloo between devices whose memory the
// host can access, NCCL between GPUs.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/server/communicator/collective_op.h"
#include "tensord/server/communicator/member_names.h"
#include "tensord/server/device/buffer.h"

namespace tensord::server {

// The place of a member in its group.
struct GroupPlace {
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{0};
  std::string group_id;
  MemberNames names;
};

// One member's connections with its group. Any thread may call backend(), address(), Wake() and
// Cancel(). All other functions are for one thread, and block. If Connect(), Watch(), Exchange() or
// Run() returns an error, the group has failed at every member; Connect() has exceptions. ABORTED
// means that a member is lost. DEADLINE_EXCEEDED means that a member was late by more than the
// timeout. No function throws. The destructor closes the connections.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual absl::string_view backend() const = 0;
  // Returns the address that the other members pass to Connect().
  virtual const std::string& address() const = 0;

  // Makes Watch() return.
  virtual void Wake() = 0;
  // Makes the current call and all later calls return `status`.
  virtual void Cancel(absl::Status status) = 0;

  // Connects with all other members. `addresses` are by rank and include this member's. After
  // INVALID_ARGUMENT and PERMISSION_DENIED, nothing has changed: Connect() may be called again.
  virtual absl::Status Connect(absl::Span<const std::string> addresses) = 0;

  // Blocks until Wake() is called or a member is lost.
  virtual absl::Status Watch() = 0;

  // Sends `word`, of 4 KiB at most, to all other members. Returns the words of all members, by
  // rank.
  virtual absl::StatusOr<std::vector<std::string>> Exchange(absl::string_view word) = 0;

  // Runs the op that all members have agreed on. Don't call it for a barrier: Exchange() is enough.
  // `input` must be complete. It is null if this member has none. `output` has the size that
  // PlanCollective() returns. It is null for the root of a broadcast: the root's result is its
  // input.
  virtual absl::Status Run(const CollectiveOp& op, const Buffer* input, Buffer* output) = 0;

  // Sends `why` to the other members and closes the connections, as PeerMesh::Leave() does.
  virtual void Leave(const absl::Status& why) = 0;
};

}  // namespace tensord::server
