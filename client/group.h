// Collective operations over devices of one server or several.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
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

// One member of a group whose other members belong to other programs, such as one process for each
// device. The programs know each other by an exchange that the caller provides, for example a
// key-value store. The rules of Group for devices, dtypes, order and errors apply here, too.
// Thread-safe, and a value that is cheap to copy.
class GroupMember {
 public:
  // An all-gather of short strings among the programs: returns the `own` of every program by rank.
  // Join calls it twice. It may block.
  using Exchange = std::function<absl::StatusOr<std::vector<std::string>>(const std::string& own)>;

  // Makes an empty GroupMember. Every operation fails with FAILED_PRECONDITION.
  GroupMember() = default;

  // Makes `device` the member `rank` of a group of `size` members. Every program calls this once
  // for its rank. Blocks until all members are connected. Errors are those of Group::Create and of
  // `exchange`, and:
  //   INVALID_ARGUMENT     `rank` isn't in [0, size), or the exchange returns another number of
  //                        strings than `size`.
  static absl::StatusOr<GroupMember> Join(const Device& device, int rank, int size,
                                          const Exchange& exchange,
                                          const GroupOptions& options = {});

  int rank() const;
  int size() const;
  const Device& device() const;

  // The operations are those of Group. `input` and the result are this member's, on its device. All
  // members call the same operations in the same order.
  Tensor AllReduce(const Tensor& input, Reduction reduction = Reduction::kSum) const;
  Tensor AllGather(const Tensor& input) const;
  Tensor ReduceScatter(const Tensor& input, Reduction reduction = Reduction::kSum) const;
  // Returns a copy of the input of the member `root`. Every member gives a tensor of the same dtype
  // and shape.
  Tensor Broadcast(const Tensor& input, int root) const;
  // Blocks until every member has run all operations that were called before.
  absl::Status Barrier() const;

 private:
  explicit GroupMember(std::shared_ptr<internal::GroupState> state) : state_(std::move(state)) {}
  Tensor Run(absl::string_view name, int kind, Reduction reduction, int root,
             const Tensor& input) const;

  std::shared_ptr<internal::GroupState> state_;
};

}  // namespace tensord
