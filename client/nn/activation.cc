#include "tensord/client/nn/activation.h"

#include "absl/strings/str_cat.h"

namespace tensord::nn {
namespace {

Tensor FlattenAxes(const Tensor& x, int64_t start_axis, int64_t end_axis) {
  if (!x.ok()) return x;
  const int64_t rank = x.rank();
  const int64_t start = start_axis < 0 ? start_axis + rank : start_axis;
  const int64_t end = end_axis < 0 ? end_axis + rank : end_axis;
  if (start < 0 || end >= rank || start > end) {
    return Tensor::Failed(absl::InvalidArgumentError(
        absl::StrCat("nn::Flatten: a tensor of shape ", x.shape().ToString(), " has no axes from ",
                     start_axis, " to ", end_axis)));
  }
  Shape flat;
  for (int64_t axis = 0; axis < rank; ++axis) {
    const int64_t size = x.shape().dim(static_cast<int>(axis));
    if (axis > start && axis <= end) {
      flat.set_dim(static_cast<int>(start), flat.dim(static_cast<int>(start)) * size);
    } else {
      flat.AppendDim(size);
    }
  }
  return Reshape(x, flat);
}

}  // namespace

ReLU::ReLU() : Function("ReLU()", [](const Tensor& x) { return Relu(x); }) {}

GELU::GELU(GeluApproximation approximate)
    : Function(absl::StrCat("GELU(approximate='",
                            approximate == GeluApproximation::kTanh ? "tanh" : "none", "')"),
               [approximate](const Tensor& x) { return Gelu(x, approximate); }) {}

SiLU::SiLU() : Function("SiLU()", [](const Tensor& x) { return Silu(x); }) {}

Sigmoid::Sigmoid() : Function("Sigmoid()", [](const Tensor& x) { return tensord::Sigmoid(x); }) {}

Tanh::Tanh() : Function("Tanh()", [](const Tensor& x) { return tensord::Tanh(x); }) {}

Softmax::Softmax(int64_t axis)
    : Function(absl::StrCat("Softmax(dim=", axis, ")"),
               [axis](const Tensor& x) { return tensord::Softmax(x, axis); }) {}

LogSoftmax::LogSoftmax(int64_t axis)
    : Function(absl::StrCat("LogSoftmax(dim=", axis, ")"),
               [axis](const Tensor& x) { return tensord::LogSoftmax(x, axis); }) {}

Identity::Identity() : Function("Identity()", [](const Tensor& x) { return x; }) {}

Flatten::Flatten(int64_t start_axis, int64_t end_axis)
    : Function(absl::StrCat("Flatten(start_dim=", start_axis, ", end_dim=", end_axis, ")"),
               [start_axis, end_axis](const Tensor& x) {
                 return FlattenAxes(x, start_axis, end_axis);
               }) {}

}  // namespace tensord::nn
