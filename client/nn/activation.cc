#include "tensord/client/nn/activation.h"

#include "absl/strings/str_cat.h"
#include "tensord/client/movement.h"

namespace tensord::nn {

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
                 return tensord::Flatten(x, start_axis, end_axis);
               }) {}

}  // namespace tensord::nn
