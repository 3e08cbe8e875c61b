// The ops of torch.nn.SyncBatchNorm: statistics of a part of a batch, and of all parts together.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "kernels.h"

namespace torch_tensord {
namespace {

using at::Tensor;

// Returns the axes other than that of the channels.
c10::DimVector AxesBesideChannels(const Tensor& x) {
  c10::DimVector axes;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (d != 1) axes.push_back(d);
  }
  return axes;
}
// Returns a line of numbers, one for each channel, in a shape that broadcasts to `x`.
Tensor PerChannel(const Tensor& line, const Tensor& x, at::ScalarType dtype) {
  c10::DimVector shape(x.dim(), 1);
  shape[1] = -1;
  return line.to(dtype).reshape(shape);
}

std::tuple<Tensor, Tensor> Stats(const Tensor& input, double eps) {
  const Tensor x = input.to(ComputeDType(input.scalar_type()));
  const c10::DimVector axes = AxesBesideChannels(x);
  return {x.mean(axes), x.var(axes, /*unbiased=*/false).add(eps).rsqrt()};
}

Tensor Elements(const Tensor& input, const std::optional<Tensor>& weight,
                const std::optional<Tensor>& bias, const Tensor& mean, const Tensor& invstd,
                double) {
  CommonDevice("batch_norm_elemt", {&input, &mean, &invstd});
  const at::ScalarType dtype = ComputeDType(input.scalar_type());
  Tensor y =
      input.to(dtype).sub(PerChannel(mean, input, dtype)).mul(PerChannel(invstd, input, dtype));
  if (IsGiven(weight)) y = y.mul(PerChannel(*weight, input, dtype));
  if (IsGiven(bias)) y = y.add(PerChannel(*bias, input, dtype));
  return y.to(input.scalar_type());
}
Tensor& ElementsOut(const Tensor& input, const std::optional<Tensor>& weight,
                    const std::optional<Tensor>& bias, const Tensor& mean, const Tensor& invstd,
                    double eps, Tensor& out) {
  return CopyToOut(out, Elements(input, weight, bias, mean, invstd, eps));
}

// Joins statistics with the shape (parts, channels). `counts` has the numbers of elements of a
// channel in each part.
std::tuple<Tensor, Tensor> GatherWithCounts(const Tensor& input, const Tensor& means,
                                            const Tensor& invstds,
                                            const std::optional<Tensor>& running_mean,
                                            const std::optional<Tensor>& running_var,
                                            double momentum, double eps, const Tensor& counts) {
  CommonDevice("batch_norm_gather_stats_with_counts", {&input, &means, &invstds, &counts});
  const Tensor n = counts.to(means.scalar_type()).reshape({-1, 1}), total = n.sum();
  const Tensor mean = means.mul(n).sum(0).div(total);
  const Tensor variances = invstds.pow(-2).sub(eps);
  const Tensor squares = variances.add(means.sub(mean).pow(2)).mul(n).sum(0);
  const Tensor variance = squares.div(total);
  if (IsGiven(running_mean)) running_mean->mul_(1 - momentum).add_(mean, momentum);
  if (IsGiven(running_var))
    running_var->mul_(1 - momentum).add_(squares.div(total.sub(1)), momentum);
  return {mean, variance.add(eps).rsqrt()};
}
std::tuple<Tensor, Tensor> Gather(const Tensor& input, const Tensor& means, const Tensor& invstds,
                                  const std::optional<Tensor>& running_mean,
                                  const std::optional<Tensor>& running_var, double momentum,
                                  double eps, int64_t count) {
  const Tensor counts = at::zeros({means.size(0)}, means.options()).fill_(count);
  return GatherWithCounts(input, means, invstds, running_mean, running_var, momentum, eps, counts);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> BackwardReduce(
    const Tensor& gradient, const Tensor& input, const Tensor& mean, const Tensor& invstd,
    const std::optional<Tensor>& weight, bool input_g, bool weight_g, bool bias_g) {
  CommonDevice("batch_norm_backward_reduce", {&gradient, &input, &mean, &invstd});
  const at::ScalarType dtype = ComputeDType(input.scalar_type());
  const at::ScalarType own = IsGiven(weight) ? weight->scalar_type() : input.scalar_type();
  const c10::DimVector axes = AxesBesideChannels(input);
  const Tensor g = gradient.to(dtype);
  const Tensor centered = input.to(dtype).sub(PerChannel(mean, input, dtype));
  const Tensor sum = g.sum(axes), along = g.mul(centered).sum(axes);
  std::tuple<Tensor, Tensor, Tensor, Tensor> result;
  if (input_g) {
    std::get<0>(result) = sum;
    std::get<1>(result) = along;
  }
  if (weight_g) std::get<2>(result) = along.mul(invstd).to(own);
  if (bias_g) std::get<3>(result) = sum.to(own);
  return result;
}

Tensor BackwardElements(const Tensor& gradient, const Tensor& input, const Tensor& mean,
                        const Tensor& invstd, const std::optional<Tensor>& weight,
                        const Tensor& sum, const Tensor& along, const Tensor& counts) {
  CommonDevice("batch_norm_backward_elemt", {&gradient, &input, &mean, &invstd, &sum, &counts});
  const at::ScalarType dtype = ComputeDType(input.scalar_type());
  const Tensor total = counts.sum().to(dtype);
  const Tensor centered = input.to(dtype).sub(PerChannel(mean, input, dtype));
  const Tensor slope = along.to(dtype).mul(invstd.to(dtype).pow(2)).div(total);
  Tensor g = gradient.to(dtype)
                 .sub(PerChannel(sum.to(dtype).div(total), input, dtype))
                 .sub(centered.mul(PerChannel(slope, input, dtype)))
                 .mul(PerChannel(invstd, input, dtype));
  if (IsGiven(weight)) g = g.mul(PerChannel(*weight, input, dtype));
  return g.to(input.scalar_type());
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("batch_norm_stats", Stats);
  m.impl("batch_norm_elemt", Elements);
  m.impl("batch_norm_elemt.out", ElementsOut);
  m.impl("batch_norm_gather_stats", Gather);
  m.impl("batch_norm_gather_stats_with_counts", GatherWithCounts);
  m.impl("batch_norm_backward_reduce", BackwardReduce);
  m.impl("batch_norm_backward_elemt", BackwardElements);
}

}  // namespace torch_tensord
