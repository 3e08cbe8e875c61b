// What carries a group's operations: Gloo between devices whose memory the host can access, NCCL
// between GPUs.
#pragma once

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/server/collective/collective_op.h"
#include "tensord/server/collective/network.h"
#include "tensord/server/device/backend.h"
#include "tensord/server/device/buffer.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

// What a member is made from.
struct GroupPlace {
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{0};
  std::string group_id;
  MemberNames names;
};

// One member's end of a group. Its calls block, and come from one thread, but for Wake() and
// Cancel(), which may come from any. After an error of Connect, Watch, Exchange or Run the group is
// done for, at every member: ABORTED where one is lost, DEADLINE_EXCEEDED where one didn't come
// within the timeout. Nothing throws. Going away, it hangs up.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual absl::string_view backend() const = 0;
  // What the others need to connect: for their Connect.
  virtual const std::string& address() const = 0;

  // Has Watch() return.
  virtual void Wake() = 0;
  // Has everything return `status`.
  virtual void Cancel(absl::Status status) = 0;

  // By rank, its own included. INVALID_ARGUMENT and PERMISSION_DENIED leave nothing changed, and it
  // may be called again.
  virtual absl::Status Connect(absl::Span<const std::string> addresses) = 0;

  // Returns at Wake(), or once a member is lost.
  virtual absl::Status Watch() = 0;

  // Tells the others `word`, of 4 KiB at most, and returns what everybody says, by rank.
  virtual absl::StatusOr<std::vector<std::string>> Exchange(absl::string_view word) = 0;

  // Runs what all have agreed on; not a barrier, for which the exchange is enough. `input` is
  // complete, and null where this member has none; `output` is of PlanCollective's size. The root
  // of a broadcast has none: its result is the input.
  virtual absl::Status Run(const CollectiveOp& op, const Buffer* input, Buffer* output) = 0;

  // Tells the others why it hangs up, and does so.
  virtual void Leave(const absl::Status& why) = 0;
};

// Empty where CPU devices can be members of groups; otherwise why not.
std::string CollectivesUnavailableReason();

// By kind of device. A kind may be absent.
using CommunicatorMakers = absl::flat_hash_map<DeviceKind, CommunicatorMaker>;

// Makes the communicator of a member on `device`: by the maker of its kind, or by Gloo if the kind
// has none and the host can access the device's memory. Otherwise the device can't be a member of
// groups: returns UNIMPLEMENTED, and the message names what is missing.
absl::StatusOr<std::unique_ptr<Communicator>> MakeCommunicator(const CollectiveNetwork& network,
                                                               Device& device,
                                                               const GroupPlace& place,
                                                               const CommunicatorMakers& makers);

}  // namespace tensord::server
