#include "tensord/client/nn/linear.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/creation.h"
#include "tensord/client/internal/module.h"
#include "tensord/client/internal/new_seed.h"

namespace tensord::nn {

Linear::Linear(int64_t in_features, int64_t out_features, const LinearOptions& options)
    : in_features_(in_features),
      out_features_(out_features),
      has_bias_(options.bias),
      seed_(options.seed),
      activation_(options.activation),
      weight_{{options.dtype, {out_features, in_features}}, {}},
      bias_{{options.dtype, {out_features}}, {}} {
  if (options.device.valid()) Initialize(options.device);
}

Linear::Linear(Tensor weight, Tensor bias, Activation activation)
    : has_bias_(bias.state() != nullptr), activation_(activation) {
  if (weight.rank() == 2) {
    out_features_ = weight.shape().dim(0);
    in_features_ = weight.shape().dim(1);
  }
  weight_ = {weight.spec(), std::move(weight)};
  bias_ = {bias.spec(), std::move(bias)};
}

bool Linear::given_no_weight() const {
  return !weight_.has_value() && weight_.spec.dtype == DType::kUnspecified;
}

Tensor Linear::Forward(const Tensor& x) const {
  if (given_no_weight()) {
    return Tensor::Failed(absl::FailedPreconditionError(
        "nn::Linear: the weight that the constructor was given is an empty Tensor: no value was "
        "assigned to it"));
  }
  const absl::Status status =
      internal::RequireValues(*this, {&weight_, has_bias_ ? &bias_ : nullptr});
  if (!status.ok()) return Tensor::Failed(status);
  const tensord::LinearOptions options = {.activation = activation_};
  return has_bias_ ? tensord::Linear(x, weight_.value, bias_.value, options)
                   : tensord::Linear(x, weight_.value, options);
}

std::string Linear::ToString() const {
  return absl::StrCat("Linear(in_features=", in_features_, ", out_features=", out_features_,
                      ", bias=", internal::PythonBool(has_bias_), ")");
}

void Linear::VisitParameters(const std::string& prefix, const Visitor& visit) {
  visit(prefix + "weight", &weight_);
  if (has_bias_) visit(prefix + "bias", &bias_);
}

void Linear::Initialize(const Device& device) {
  if (given_no_weight()) return;
  const double bound = internal::FanInBound(in_features_);
  const int64_t seed = seed_.has_value() ? *seed_ : tensord::internal::NewSeed();
  const auto draw = [&](const TensorSpec& spec, int64_t own_seed) {
    if (bound == 0) return Zeros(device, spec.shape, {.dtype = spec.dtype});
    return Uniform(device, spec.shape, own_seed,
                   {.low = -bound, .high = bound, .dtype = spec.dtype});
  };
  if (!weight_.has_value()) weight_.value = draw(weight_.spec, seed);
  if (has_bias_ && !bias_.has_value()) bias_.value = draw(bias_.spec, ~seed);
}

}  // namespace tensord::nn
