#include "tensord/client/parallel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/ops.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

std::vector<Tensor> AllFailed(size_t count, const absl::Status& status) {
  return std::vector<Tensor>(count, Tensor::Failed(status));
}

// Splits like torch.tensor_split. x must have `axis`, counted from 0.
std::vector<Tensor> Split(const Tensor& x, int64_t axis, int64_t count) {
  const int64_t size = x.shape().dim(static_cast<int>(axis));
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t end = begin + size / count + (i < size % count ? 1 : 0);
    parts.push_back(Slice(x, {begin}, {end}, {.axes = {axis}}));
    begin = end;
  }
  return parts;
}

absl::StatusOr<int64_t> AxisOf(absl::string_view what, const Tensor& x, int64_t axis) {
  TENSORD_RETURN_IF_ERROR(x.status());
  if (axis >= -x.rank() && axis < x.rank()) return axis < 0 ? axis + x.rank() : axis;
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", x.Describe(), " has no axis ", axis));
}

absl::Status CheckCount(absl::string_view what, size_t tensors, size_t devices) {
  if (tensors == devices) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": ", tensors, " tensors for ", devices, " devices"));
}

}  // namespace

std::vector<Tensor> Replicate(const Tensor& x, absl::Span<const Device> devices) {
  std::vector<Tensor> copies;
  for (size_t i = 0; i < devices.size(); ++i) {
    const Tensor& from = i == 0 ? x : copies[(i - 1) / 2];
    copies.push_back(x.ok() && x.device() == devices[i] ? x : from.To(devices[i]));
  }
  return copies;
}

std::vector<Tensor> Shard(const Tensor& x, int64_t axis, absl::Span<const Device> devices) {
  const absl::StatusOr<int64_t> cut = AxisOf("shard", x, axis);
  if (!cut.ok()) return AllFailed(devices.size(), cut.status());
  std::vector<Tensor> parts = Split(x, *cut, static_cast<int64_t>(devices.size()));
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = parts[i].To(devices[i]);
  return parts;
}

Tensor Gather(absl::Span<const Tensor> parts, int64_t axis, const Device& device) {
  std::vector<Tensor> here;
  for (const Tensor& part : parts) here.push_back(part.To(device));
  return Concat(here, axis);
}

namespace nn {

ColumnParallelLinear::ColumnParallelLinear(const Tensor& weight, const Tensor& bias,
                                           absl::Span<const Device> devices, Activation activation)
    : weights_(Shard(weight, 0, devices)), activation_(activation) {
  if (bias.state() != nullptr) biases_ = Shard(bias, 0, devices);
}

std::vector<Tensor> ColumnParallelLinear::Forward(absl::Span<const Tensor> x) const {
  const absl::Status fits = CheckCount("column-parallel linear", x.size(), weights_.size());
  if (!fits.ok()) return AllFailed(weights_.size(), fits);
  std::vector<Tensor> y;
  for (size_t i = 0; i < x.size(); ++i) {
    y.push_back(biases_.empty()
                    ? tensord::Linear(x[i], weights_[i], {.activation = activation_})
                    : tensord::Linear(x[i], weights_[i], biases_[i], {.activation = activation_}));
  }
  return y;
}

RowParallelLinear::RowParallelLinear(const Tensor& weight, const Tensor& bias, Group group)
    : group_(std::move(group)), weights_(Shard(weight, 1, group_.devices())) {
  if (bias.state() != nullptr) biases_ = Replicate(bias, group_.devices());
}

std::vector<Tensor> RowParallelLinear::Forward(absl::Span<const Tensor> x) const {
  const absl::Status fits = CheckCount("row-parallel linear", x.size(), weights_.size());
  if (!fits.ok()) return AllFailed(weights_.size(), fits);
  std::vector<Tensor> products;
  for (size_t i = 0; i < x.size(); ++i) products.push_back(tensord::Linear(x[i], weights_[i]));
  std::vector<Tensor> y = group_.AllReduce(products);
  if (!biases_.empty()) {
    for (size_t i = 0; i < y.size(); ++i) y[i] = y[i] + biases_[i];
  }
  return y;
}

absl::StatusOr<Pipeline> Pipeline::Create(std::vector<std::shared_ptr<Module>> stages,
                                          const std::vector<Device>& devices) {
  if (stages.empty() || stages.size() != devices.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("pipeline: ", stages.size(), " stages for ", devices.size(), " devices"));
  }
  for (size_t i = 0; i < stages.size(); ++i) {
    TENSORD_RETURN_IF_ERROR(stages[i]->To(devices[i]));
  }
  Pipeline pipeline;
  pipeline.stages_ = std::move(stages);
  pipeline.devices_ = devices;
  return pipeline;
}

Tensor Pipeline::Forward(const Tensor& x, int num_micro_batches) const {
  const absl::StatusOr<int64_t> rows = AxisOf("pipeline", x, 0);
  if (!rows.ok()) return Tensor::Failed(rows.status());
  if (num_micro_batches < 1) {
    return Tensor::Failed(absl::InvalidArgumentError(
        absl::StrCat("pipeline: ", num_micro_batches, " micro-batches; use at least one")));
  }
  const int64_t count =
      std::max<int64_t>(1, std::min<int64_t>(num_micro_batches, x.shape().dim(0)));
  return Concat(Forward(Split(x, 0, count)), 0);
}

std::vector<Tensor> Pipeline::Forward(absl::Span<const Tensor> micro_batches) const {
  std::vector<Tensor> results;
  for (const Tensor& micro_batch : micro_batches) {
    Tensor x = micro_batch;
    for (size_t i = 0; i < stages_.size(); ++i) x = stages_[i]->Forward(x.To(devices_[i]));
    results.push_back(std::move(x));
  }
  return results;
}

}  // namespace nn
}  // namespace tensord
