// One model over several devices, of one server or several (cluster.h): tensor parallelism and
// pipelines, like torch.distributed.tensor.parallel and torch.distributed.pipelining. Nothing here
// waits for the server. Errors are in the results' statuses, unless a function returns a Status.
// Several threads may call the functions, and Forward of one layer or pipeline; while they do, no
// thread may change a module of a pipeline (nn.h).
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

// Returns a copy of x on each device, in their order. On x's own device, the copy is x itself. Each
// copy is the source of at most two further copies (a binary tree), so that the network of x's
// server isn't the bottleneck.
std::vector<Tensor> Replicate(const Tensor& x, absl::Span<const Device> devices);

// Splits x along an axis and returns one part on each device. If the size of the axis isn't
// divisible by the number of devices, the first parts are longer by one, as in torch.tensor_split.
// A negative axis counts from the end. If x doesn't have the axis, the parts have the error
// INVALID_ARGUMENT.
std::vector<Tensor> Shard(const Tensor& x, int64_t axis, absl::Span<const Device> devices);

// Returns the parts, concatenated along an axis, on `device`.
Tensor Gather(absl::Span<const Tensor> parts, int64_t axis, const Device& device);

namespace nn {

// y = activation(x·Wᵀ + b) with W and b sharded along the output features. Each device computes its
// part of y from all of x, without communication.
class ColumnParallelLinear {
 public:
  // `weight` is (out,in). `bias` is (out), or an empty Tensor if there is no bias. They may be on
  // any device.
  ColumnParallelLinear(const Tensor& weight, const Tensor& bias, absl::Span<const Device> devices,
                       Activation activation = Activation::kNone);

  // `x` has a tensor (…,in) for each device, all with the same values (Replicate). Returns a part
  // (…,out/size) for each of the `size` devices. Gather along the last axis returns the whole
  // result. RowParallelLinear accepts the parts directly.
  std::vector<Tensor> Forward(absl::Span<const Tensor> x) const;

  const std::vector<Tensor>& weights() const { return weights_; }
  // Returns a part of the bias for each device. If there is no bias, the list is empty.
  const std::vector<Tensor>& biases() const { return biases_; }

 private:
  std::vector<Tensor> weights_;
  std::vector<Tensor> biases_;
  Activation activation_;
};

// y = x·Wᵀ + b with W sharded along the input features. Each device multiplies its part of x, and
// the group adds the products. Then each device adds the bias.
class RowParallelLinear {
 public:
  // `weight` is (out,in). `bias` is (out), or an empty Tensor if there is no bias. They may be on
  // any device.
  RowParallelLinear(const Tensor& weight, const Tensor& bias, Group group);

  // `x` has a part (…,in/size) for each of the `size` devices, as ColumnParallelLinear returns
  // them. Returns a tensor (…,out) for each device, all with the same values.
  std::vector<Tensor> Forward(absl::Span<const Tensor> x) const;

  const std::vector<Tensor>& weights() const { return weights_; }
  // Returns a copy of the bias for each device. If there is no bias, the list is empty.
  const std::vector<Tensor>& biases() const { return biases_; }

 private:
  Group group_;
  std::vector<Tensor> weights_;
  std::vector<Tensor> biases_;
};

// A model in stages, each on a device of its own. While a stage computes a micro-batch, the
// previous stage computes the next one. Results are copied from device to device. The client sends
// all ops and copies without waiting: there is no round trip to this program between two stages.
class Pipeline {
 public:
  // Moves each stage to its device (Module::To), in order. If a stage can't be moved, returns the
  // error, and earlier stages stay on their new devices. If there are no stages, or not as many
  // stages as devices, returns INVALID_ARGUMENT.
  static absl::StatusOr<Pipeline> Create(std::vector<std::shared_ptr<Module>> stages,
                                         const std::vector<Device>& devices);

  // Splits x along its first axis into micro-batches, as Shard does, but into no more than x has
  // rows. Returns their results, concatenated, on the last stage's device. Stages must compute each
  // row independently of the other rows.
  Tensor Forward(const Tensor& x, int num_micro_batches) const;
  // Runs micro-batches, which may be on any device, and returns their results in the same order.
  std::vector<Tensor> Forward(absl::Span<const Tensor> micro_batches) const;

  const std::vector<std::shared_ptr<Module>>& stages() const { return stages_; }
  const std::vector<Device>& devices() const { return devices_; }

 private:
  std::vector<std::shared_ptr<Module>> stages_;
  std::vector<Device> devices_;
};

}  // namespace nn
}  // namespace tensord
