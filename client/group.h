// Collective operations over devices of one server or several.
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

// How the members' elements are combined.
enum class Reduction {
  kSum,
  kMean,  // floating dtypes
  kMax,   // NaN if any is NaN
};

struct GroupOptions {
  // The time limit of each of the two calls that Create makes to every server, and of an
  // operation's wait for its last member. If a server doesn't answer at all, a call ends five
  // seconds after this limit. If a connection breaks, Create tries again, up to 20 times in all.
  absl::Duration timeout = absl::Seconds(30);
};

// A group of devices for collective operations, like a process group of torch.distributed: each
// device is a member, and ranks follow the order of the devices. All devices are CPUs (Gloo), or
// all are GPUs (NCCL). The servers exchange the bytes directly, and each must allow this (tensord
// --collectives).
//
// Like ops, operations don't wait, and they run in the order of the calls. If the inputs don't fit
// (their number, devices, dtypes, shapes), every output has the error and nothing is sent. If an
// operation fails later (a server is lost, a member is late), the outputs of every member get the
// error, ABORTED or DEADLINE_EXCEEDED. The group can't be used after that; the caller may create
// another.
//
// AllGather and Broadcast take all dtypes. Reductions take the floating dtypes, and integers of 8,
// 32 or 64 bits. A Group is a value: copies share the group. When the last one is destroyed, the
// servers free the group after its operations have run. Thread-safe.
class Group {
 public:
  // Makes an empty Group. Every operation fails with FAILED_PRECONDITION.
  Group() = default;

  // Creates a group and blocks until its members are connected with one another. Errors:
  //   INVALID_ARGUMENT     no devices, devices of different kinds, or a device occurs twice.
  //   FAILED_PRECONDITION  a device isn't valid(), or the named server has no --collectives.
  //   DEADLINE_EXCEEDED    members can't reach each other in GroupOptions::timeout.
  static absl::StatusOr<Group> Create(std::vector<Device> devices,
                                      const GroupOptions& options = {});

  int size() const;
  const std::vector<Device>& devices() const;

  // In the following, `inputs` are the members' tensors by rank, each on its member's device, all
  // of the same dtype and shape. The results are the members' outputs by rank, each on its device.

  // Each output is the reduction of all inputs. kMean needs a floating dtype. (…) -> (…).
  std::vector<Tensor> AllReduce(absl::Span<const Tensor> inputs,
                                Reduction reduction = Reduction::kSum) const;
  // Each output is the concatenation of all inputs, by rank, along the first axis.
  // (d, …) -> (size·d, …).
  std::vector<Tensor> AllGather(absl::Span<const Tensor> inputs) const;
  // Reduces the inputs and splits the result along its first axis. Output i is part i.
  // (size·d, …) -> (d, …).
  std::vector<Tensor> ReduceScatter(absl::Span<const Tensor> inputs,
                                    Reduction reduction = Reduction::kSum) const;
  // Each output is a copy of `input`, which must be on the device of a member. (…) -> (…).
  std::vector<Tensor> Broadcast(const Tensor& input) const;
  // Blocks until every member has run all operations that were called before.
  absl::Status Barrier() const;

 private:
  explicit Group(std::shared_ptr<internal::GroupState> state) : state_(std::move(state)) {}

  std::shared_ptr<internal::GroupState> state_;
};

}  // namespace tensord
