#include "tensord/client/nn/conv.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/internal/module.h"

namespace tensord::nn {
namespace {

Shape ConvWeightShape(int64_t in_channels, int64_t out_channels, int64_t groups,
                      const std::vector<int64_t>& kernel) {
  std::vector<int64_t> dims = {out_channels, groups > 0 ? in_channels / groups : 0};
  dims.insert(dims.end(), kernel.begin(), kernel.end());
  return Shape(dims);
}

std::vector<int64_t> RepeatForAxes(std::vector<int64_t> values, int axes) {
  if (values.size() == 1) values.resize(axes, values[0]);
  return values;
}

}  // namespace

Conv::Conv(int axes, int64_t in_channels, int64_t out_channels, std::vector<int64_t> kernel,
           const ConvOptions& options)
    : axes_(axes),
      in_channels_(in_channels),
      kernel_(RepeatForAxes(std::move(kernel), axes)),
      options_{.stride = options.stride,
               .padding = options.padding,
               .dilation = options.dilation,
               .groups = options.groups,
               .same_padding = options.same_padding,
               .activation = options.activation},
      seed_(options.seed),
      weight_{
          {options.dtype, ConvWeightShape(in_channels, out_channels, options.groups, kernel_)}} {
  if (options.bias) bias_ = Parameter{{options.dtype, {out_channels}}};
  if (options.device.valid()) Initialize(options.device);
}

Tensor Conv::Forward(const Tensor& x) const {
  const absl::Status status =
      internal::RequireValues(*this, {&weight_, bias_.has_value() ? &*bias_ : nullptr});
  if (!status.ok()) return Tensor::Failed(status);
  std::optional<Tensor> bias;
  if (bias_.has_value()) bias = bias_->value;
  const auto convolve = axes_ == 1 ? tensord::Conv1d : tensord::Conv2d;
  return convolve(x, weight_.value, bias, options_);
}

std::string Conv::ToString() const {
  const auto tuple = [&](const std::vector<int64_t>& values, int64_t otherwise) {
    return internal::PythonTuple(
        RepeatForAxes(values.empty() ? std::vector<int64_t>{otherwise} : values, axes_));
  };
  std::string text = absl::StrCat(
      "Conv", axes_, "d(", in_channels_, ", ", weight_.spec.shape.dim(0),
      ", kernel_size=", internal::PythonTuple(kernel_), ", stride=", tuple(options_.stride, 1));
  if (options_.same_padding) {
    text += ", padding=same";
  } else if (const std::string padding = tuple(options_.padding, 0); padding != tuple({}, 0)) {
    absl::StrAppend(&text, ", padding=", padding);
  }
  if (const std::string dilation = tuple(options_.dilation, 1); dilation != tuple({}, 1)) {
    absl::StrAppend(&text, ", dilation=", dilation);
  }
  if (options_.groups != 1) absl::StrAppend(&text, ", groups=", options_.groups);
  if (!bias_.has_value()) text += ", bias=False";
  return text + ")";
}

void Conv::VisitParameters(const std::string& prefix, const Visitor& visit) {
  visit(prefix + "weight", &weight_);
  if (bias_.has_value()) visit(prefix + "bias", &*bias_);
}

void Conv::Initialize(const Device& device) {
  int64_t fan_in = weight_.spec.shape.dim(1);
  for (const int64_t size : kernel_) fan_in *= size;
  internal::Initializer initializer(device, seed_);
  initializer.Uniform(&weight_, internal::FanInBound(fan_in));
  if (bias_.has_value()) initializer.Uniform(&*bias_, internal::FanInBound(fan_in));
}

Conv1d::Conv1d(int64_t in_channels, int64_t out_channels, std::vector<int64_t> kernel,
               const ConvOptions& options)
    : Conv(1, in_channels, out_channels, std::move(kernel), options) {}

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, std::vector<int64_t> kernel,
               const ConvOptions& options)
    : Conv(2, in_channels, out_channels, std::move(kernel), options) {}

}  // namespace tensord::nn
