// Devices, of one server or many, that compute something together.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tensord/client/device.h"
#include "tensord/client/tensor.h"

namespace tensord {

namespace internal {
struct GroupState;
}

// How the elements of several tensors become one.
enum class Reduction {
  kSum,
  kMean,  // floating dtypes
  kMax,   // NaN wins
};

struct GroupOptions {
  // How long making the group may take, and how long an operation waits for its last member. Each
  // of the two questions by which it is made takes five seconds more where a server doesn't answer
  // at all.
  absl::Duration timeout = absl::Seconds(30);
};

// A group of devices for collective operations, as torch.distributed's process groups are: one
// member a device, ranks in the order of the devices. All CPUs (Gloo does the work) or all GPUs
// (NCCL). Bytes go between the servers, which must be willing (tensord --collectives).
//
// One program gives each member its part, so that operations don't wait, as no op does. A group's
// operations run in the order in which they were given. Tensors that don't fit (their number,
// devices, dtypes, shapes) are an error at the call, in every output, and nothing is sent; what
// happens later (a lost server, a member that doesn't come in time) sticks to the outputs of
// every member: ABORTED or DEADLINE_EXCEEDED. The group is of no use then, and another can be made.
//
// dtypes: float16, bfloat16, float32, float64, int32, int64. A value: copies name the same group,
// and the last takes it apart once all that was given has run. Thread-safe.
class Group {
 public:
  // No group: every operation fails with FAILED_PRECONDITION.
  Group() = default;

  // Waits until all members are connected with one another. INVALID_ARGUMENT where the devices are
  // of different kinds or one comes twice, FAILED_PRECONDITION naming a server that isn't willing,
  // DEADLINE_EXCEEDED where members can't reach each other.
  static absl::StatusOr<Group> Create(std::vector<Device> devices,
                                      const GroupOptions& options = {});

  int size() const;
  const std::vector<Device>& devices() const;

  // In the following `inputs` are the members' tensors by rank, each on its device and all of the
  // same dtype and shape; so are the outputs.

  // Each: the reduction of all.
  std::vector<Tensor> AllReduce(absl::Span<const Tensor> inputs,
                                Reduction reduction = Reduction::kSum) const;
  // Each: all inputs, one after another along the first axis. (d, …) -> (size·d, …).
  std::vector<Tensor> AllGather(absl::Span<const Tensor> inputs) const;
  // Each: its part, by rank, of the reduction's first axis. (size·d, …) -> (d, …).
  std::vector<Tensor> ReduceScatter(absl::Span<const Tensor> inputs,
                                    Reduction reduction = Reduction::kSum) const;
  // Each: `input`, which is on the device of one member.
  std::vector<Tensor> Broadcast(const Tensor& input) const;
  // Waits until every member has done all that it was given before.
  absl::Status Barrier() const;

 private:
  explicit Group(std::shared_ptr<internal::GroupState> state) : state_(std::move(state)) {}

  std::shared_ptr<internal::GroupState> state_;
};

}  // namespace tensord
