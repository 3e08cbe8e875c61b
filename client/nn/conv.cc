#include "tensord/client/nn/conv.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/functional.h"
#include "tensord/client/internal/module.h"

namespace tensord::nn {
namespace {

std::vector<int64_t> PerAxis(std::vector<int64_t> values, int axes) {
  if (values.size() == 1) values.resize(axes, values[0]);
  return values;
}

Shape WeightShape(int64_t in_channels, int64_t out_channels, int64_t groups,
                  const std::vector<int64_t>& kernel) {
  std::vector<int64_t> dims = {out_channels, groups > 0 ? in_channels / groups : 0};
  dims.insert(dims.end(), kernel.begin(), kernel.end());
  return Shape(dims);
}

}  // namespace

Conv::Conv(int axes, int64_t in_channels, int64_t out_channels, std::vector<int64_t> kernel,
           const ConvOptions& options)
    : axes_(axes),
      in_channels_(in_channels),
      kernel_(PerAxis(std::move(kernel), axes)),
      options_{.stride = PerAxis(options.stride, axes),
               .padding = PerAxis(options.padding, axes),
               .dilation = PerAxis(options.dilation, axes),
               .groups = options.groups,
               .activation = options.activation},
      seed_(options.seed),
      weight_{{options.dtype, WeightShape(in_channels, out_channels, options.groups, kernel_)}} {
  if (options.bias) bias_ = Parameter{{options.dtype, {out_channels}}};
  if (options.device.valid()) Initialize(options.device);
}

Tensor Conv::Forward(const Tensor& x) const {
  const Parameter* bias = bias_.has_value() ? &*bias_ : nullptr;
  absl::Status status = internal::RequireValues(*this, {&weight_, bias});
  if (status.ok()) status = x.status();
  const bool batched = status.ok() && x.rank() == axes_ + 2;
  if (status.ok() && !batched && x.rank() != axes_ + 1) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "nn::", internal::KindOf(*this), ": x has shape ", x.shape().ToString(), " of ", x.rank(),
        " dimensions, and must have ", axes_ + 2, ", or ", axes_ + 1, " without a batch"));
  }
  if (!status.ok()) return Tensor::Failed(status);
  if (!batched) {
    Shape one({1});
    for (int i = 0; i < x.rank(); ++i) one.AppendDim(x.shape().dim(i));
    const Tensor y = Forward(Reshape(x, one));
    return Slice(y, {0}, {1}).ok() ? RemoveFirstAxis(y) : y;
  }
  tensord::ConvOptions convolution = options_;
  if (bias != nullptr) convolution.bias = bias->value;
  return tensord::Conv(x, weight_.value, convolution);
}
