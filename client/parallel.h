// One model over many devices: what PyTorch has in torch.distributed.tensor.parallel and
// torch.distributed.pipelining, as far as it goes by tensors. Devices may be of one server or of
// several (cluster.h). Nothing here waits, but for Group::Create; errors are in the results'
// statuses.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensord/client/device.h"
#include "tensord/client/group.h"
#include "tensord/client/nn.h"
#include "tensord/client/tensor.h"

namespace tensord {

// A copy on each device, in their order. Copies are made from copies, in a binary tree, so that the
// source's network isn't the bottleneck.
std::vector<Tensor> Replicate(const Tensor& x, absl::Span<const Device> devices);

// x cut along an axis into as many parts as there are devices, each on its device, as
// torch.tensor_split: where the axis doesn't divide, the first parts are one longer. A negative
// axis counts from the end.
std::vector<Tensor> Shard(const Tensor& x, int64_t axis, absl::Span<const Device> devices);

// The parts put together again along an axis, on `device`.
Tensor Gather(absl::Span<const Tensor> parts, int64_t axis, const Device& device);

namespace nn {

// y = activation(x·Wᵀ + b) with W and b cut along the output features: each device has its own and
// computes its part of y from the whole of x, without asking the others.
class ColumnParallelLinear {
 public:
  // weight (out,in), bias (out) or an empty Tensor for none; wherever they are.
  ColumnParallelLinear(const Tensor& weight, const Tensor& bias, absl::Span<const Device> devices,
                       Activation activation = Activation::kNone);

  // x (…,in), the same on each device (Replicate) -> (…,out/size) by device, which Gather along the
  // last axis makes whole, or RowParallelLinear takes as they are.
  std::vector<Tensor> Forward(absl::Span<const Tensor> x) const;

  const std::vector<Tensor>& weights() const { return weights_; }
  // Empty where there is none.
  const std::vector<Tensor>& biases() const { return biases_; }

 private:
  std::vector<Tensor> weights_;
  std::vector<Tensor> biases_;
  Activation activation_;
};

// y = x·Wᵀ + b with W cut along the input features: each device multiplies its part of x, and the
// group adds the products up. The bias is added once.
class RowParallelLinear {
 public:
  // weight (out,in), bias (out) or an empty Tensor for none; wherever they are.
  RowParallelLinear(const Tensor& weight, const Tensor& bias, Group group);

  // x (…,in/size) by device, as ColumnParallelLinear gives it -> (…,out), the same on each.
  std::vector<Tensor> Forward(absl::Span<const Tensor> x) const;

  const std::vector<Tensor>& weights() const { return weights_; }
  // The whole of it on each device; empty where there is none.
  const std::vector<Tensor>& biases() const { return biases_; }

 private:
  Group group_;
  std::vector<Tensor> weights_;
  std::vector<Tensor> biases_;
};

// A model in stages, each on a device of its own, through which micro-batches go one behind the
// other: while a stage has one, the stage before has the next. A copy carries what goes from one
// device to the next; all of it is set going at once, and no round trip of this program's lies
// between two stages.
class Pipeline {
 public:
  // Moves each stage to its device (Module::To), in order. The error of the first that can't be.
  static absl::StatusOr<Pipeline> Create(std::vector<std::shared_ptr<Module>> stages,
                                         const std::vector<Device>& devices);

  // x cut along its first axis into so many micro-batches (as Shard does; at most as many as it is
  // long), and their results put together on the last stage's device. Stages must treat the rows of
  // a batch apart from one another.
  Tensor Forward(const Tensor& x, int num_micro_batches) const;
  // The same for micro-batches that are apart already, wherever they are: results in their order.
  std::vector<Tensor> Forward(absl::Span<const Tensor> micro_batches) const;

  const std::vector<std::shared_ptr<Module>>& stages() const { return stages_; }
  const std::vector<Device>& devices() const { return devices_; }

 private:
  std::vector<std::shared_ptr<Module>> stages_;
  std::vector<Device> devices_;
};

}  // namespace nn
}  // namespace tensord
