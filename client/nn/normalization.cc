#include "tensord/client/nn/normalization.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/internal/module.h"

namespace tensord::nn {
namespace {

const Parameter* PointerTo(const std::optional<Parameter>& parameter) {
  return parameter.has_value() ? &*parameter : nullptr;
}

std::optional<Tensor> ValueOf(const std::optional<Parameter>& parameter) {
  if (!parameter.has_value()) return std::nullopt;
  return parameter->value;
}

void Visit(const std::string& name, std::optional<Parameter>& parameter,
           const Module::Visitor& visit) {
  if (parameter.has_value()) visit(name, &*parameter);
}

std::optional<Parameter> MakeParameter(bool exists, DType dtype, const Shape& shape) {
  if (!exists) return std::nullopt;
  return Parameter{{dtype, shape}};
}

// Checks that x ends with the normalized dimensions.
absl::Status CheckNormalized(const Module& module, const Tensor& x,
                             const std::vector<int64_t>& normalized) {
  if (!x.ok()) return x.status();
  const int first = x.rank() - static_cast<int>(normalized.size());
  bool fits = first >= 0 && !normalized.empty();
  for (size_t i = 0; fits && i < normalized.size(); ++i) {
    fits = x.shape().dim(first + static_cast<int>(i)) == normalized[i];
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("nn::", internal::KindOf(module), ": x has shape ",
                                                 x.shape().ToString(), ", which must end with ",
                                                 Shape(normalized).ToString()));
}

// Returns the default of RMSNorm's eps for elements of this dtype, as PyTorch 2.15 chooses it.
double ChooseEpsilon(DType dtype) {
  return dtype == DType::kFloat64 ? std::numeric_limits<double>::epsilon()
                                  : std::numeric_limits<float>::epsilon();
}

}  // namespace

LayerNorm::LayerNorm(std::vector<int64_t> normalized_shape, const NormOptions& options)
    : normalized_shape_(std::move(normalized_shape)),
      eps_(options.eps.value_or(1e-5)),
      weight_(MakeParameter(options.elementwise_affine, options.dtype, Shape(normalized_shape_))),
      bias_(MakeParameter(options.elementwise_affine && options.bias, options.dtype,
                          Shape(normalized_shape_))) {
  if (options.device.valid()) Initialize(options.device);
}

Tensor LayerNorm::Forward(const Tensor& x) const {
  absl::Status status = internal::RequireValues(*this, {PointerTo(weight_), PointerTo(bias_)});
  if (status.ok()) status = CheckNormalized(*this, x, normalized_shape_);
  if (!status.ok()) return Tensor::Failed(status);
  return tensord::LayerNorm(
      x, {ValueOf(weight_), ValueOf(bias_)},
      {.normalized_rank = static_cast<int64_t>(normalized_shape_.size()), .eps = eps_});
}

std::string LayerNorm::ToString() const {
  return absl::StrCat("LayerNorm(", internal::PythonTuple(normalized_shape_), ", eps=", eps_,
                      ", elementwise_affine=", internal::PythonBool(weight_.has_value()),
                      ", bias=", internal::PythonBool(bias_.has_value()), ")");
}

void LayerNorm::VisitParameters(const std::string& prefix, const Visitor& visit) {
  Visit(prefix + "weight", weight_, visit);
  Visit(prefix + "bias", bias_, visit);
}

void LayerNorm::Initialize(const Device& device) {
  internal::Initializer initializer(device, 0);
  if (weight_.has_value()) initializer.Fill(&*weight_, 1);
  if (bias_.has_value()) initializer.Fill(&*bias_, 0);
}

RMSNorm::RMSNorm(std::vector<int64_t> normalized_shape, const NormOptions& options)
    : normalized_shape_(std::move(normalized_shape)),
      eps_(options.eps),
      weight_(MakeParameter(options.elementwise_affine, options.dtype, Shape(normalized_shape_))) {
  if (options.device.valid()) Initialize(options.device);
}

Tensor RMSNorm::Forward(const Tensor& x) const {
  absl::Status status = internal::RequireValues(*this, {PointerTo(weight_)});
  if (status.ok()) status = CheckNormalized(*this, x, normalized_shape_);
  if (!status.ok()) return Tensor::Failed(status);
  return tensord::RmsNorm(x, {.weight = ValueOf(weight_)},
                          {.normalized_rank = static_cast<int64_t>(normalized_shape_.size()),
                           .eps = eps_.value_or(ChooseEpsilon(x.dtype()))});
}

std::string RMSNorm::ToString() const {
  return absl::StrCat("RMSNorm(", internal::PythonTuple(normalized_shape_),
                      ", eps=", eps_.has_value() ? absl::StrCat(*eps_) : "None",
                      ", elementwise_affine=", internal::PythonBool(weight_.has_value()), ")");
}

void RMSNorm::VisitParameters(const std::string& prefix, const Visitor& visit) {
  Visit(prefix + "weight", weight_, visit);
}

void RMSNorm::Initialize(const Device& device) {
  if (weight_.has_value()) internal::Initializer(device, 0).Fill(&*weight_, 1);
}

BatchNorm::BatchNorm(std::string name, int min_rank, int max_rank, int64_t num_features,
                     const BatchNormOptions& options)
    : name_(std::move(name)),
      min_rank_(min_rank),
      max_rank_(max_rank),
      eps_(options.eps),
      momentum_(options.momentum),
      weight_(MakeParameter(options.affine, options.dtype, {num_features})),
      bias_(MakeParameter(options.affine, options.dtype, {num_features})),
      running_mean_{{options.dtype, {num_features}}, {}, /*is_buffer=*/true},
      running_var_{{options.dtype, {num_features}}, {}, /*is_buffer=*/true},
      num_batches_tracked_{{DType::kInt64, Shape()}, {}, /*is_buffer=*/true} {
  if (options.device.valid()) Initialize(options.device);
}

Tensor BatchNorm::Forward(const Tensor& x) const {
  absl::Status status = internal::RequireValues(
      *this, {PointerTo(weight_), PointerTo(bias_), &running_mean_, &running_var_});
  if (status.ok()) status = x.status();
  if (status.ok() && (x.rank() < min_rank_ || x.rank() > max_rank_)) {
    status = absl::InvalidArgumentError(
        absl::StrCat("nn::", name_, ": x has shape ", x.shape().ToString(), " of ", x.rank(),
                     " dimensions, and must have ", min_rank_,
                     max_rank_ > min_rank_ ? absl::StrCat(" or ", max_rank_) : ""));
  }
  if (!status.ok()) return Tensor::Failed(status);
  const NormParameters parameters = {ValueOf(weight_), ValueOf(bias_)};
  const tensord::BatchNormOptions options = {.eps = eps_, .momentum = momentum_};
  if (!training()) {
    return tensord::BatchNorm(x, running_mean_.value, running_var_.value, parameters, options);
  }
  return BatchNormInTraining(x, running_mean_.value, running_var_.value, parameters, options).y;
}

std::string BatchNorm::ToString() const {
  return absl::StrCat(
      name_, "(", running_mean_.spec.shape.dim(0), ", eps=", eps_, ", momentum=", momentum_,
      ", affine=", internal::PythonBool(weight_.has_value()),
      ", bias=", internal::PythonBool(bias_.has_value()), ", track_running_stats=True)");
}

void BatchNorm::VisitParameters(const std::string& prefix, const Visitor& visit) {
  Visit(prefix + "weight", weight_, visit);
  Visit(prefix + "bias", bias_, visit);
  visit(prefix + "running_mean", &running_mean_);
  visit(prefix + "running_var", &running_var_);
  visit(prefix + "num_batches_tracked", &num_batches_tracked_);
}

void BatchNorm::Initialize(const Device& device) {
  internal::Initializer initializer(device, 0);
  if (weight_.has_value()) initializer.Fill(&*weight_, 1);
  if (bias_.has_value()) initializer.Fill(&*bias_, 0);
  initializer.Fill(&running_mean_, 0);
  initializer.Fill(&running_var_, 1);
  initializer.Fill(&num_batches_tracked_, 0);
}

BatchNorm1d::BatchNorm1d(int64_t num_features, const BatchNormOptions& options)
    : BatchNorm("BatchNorm1d", 2, 3, num_features, options) {}

BatchNorm2d::BatchNorm2d(int64_t num_features, const BatchNormOptions& options)
    : BatchNorm("BatchNorm2d", 4, 4, num_features, options) {}

}  // namespace tensord::nn
