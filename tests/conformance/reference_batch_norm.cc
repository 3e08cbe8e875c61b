// batch_norm and its gradient.
#include <cmath>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

// Returns the positions of the elements of each channel.
std::vector<Group> ChannelsOf(const Shape& x) {
  std::vector<Group> channels(x.dim(1));
  for (int64_t i = 0; i < x.num_elements(); ++i) channels[Unravel(i, x)[1]].push_back(i);
  return channels;
}

Values PerChannel(DType dtype, int64_t channels) {
  Values values = Values::Of(dtype, Shape({channels}));
  values.scale.resize(values.size());
  return values;
}

std::vector<Values> BatchNorm(const Attributes& attrs, Inputs inputs) {
  const Values &x = inputs[0], &running_mean = inputs[1], &running_var = inputs[2];
  const bool training = Get(attrs, "training", false);
  const double eps = Get<double>(attrs, "eps", 1e-5),
               momentum = Get<double>(attrs, "momentum", 0.1);
  const std::vector<Group> channels = ChannelsOf(x.spec.shape);
  const auto count = static_cast<int64_t>(channels.size());
  Values y = Values::Of(x.spec.dtype, x.spec.shape);
  y.scale.resize(y.size());
  Values mean = PerChannel(StatisticsOf(x.spec.dtype), count), invstd = mean;
  Values new_mean = PerChannel(running_mean.spec.dtype, count);
  Values new_var = PerChannel(running_var.spec.dtype, count);
  for (int64_t c = 0; c < count; ++c) {
    const auto n = static_cast<long double>(channels[c].size());
    long double m = running_mean.real[c], v = running_var.real[c], magnitude = std::fabs(m);
    if (training) {
      long double sum = 0, squares = 0;
      magnitude = 0;
      for (const int64_t at : channels[c]) sum += x.real[at];
      for (const int64_t at : channels[c]) magnitude += std::fabs(x.real[at]) / n;
      const long double old_mean = m, old_var = v;
      m = sum / n;
      for (const int64_t at : channels[c]) squares += (x.real[at] - m) * (x.real[at] - m);
      v = squares / n;
      new_mean.real[c] = static_cast<double>(old_mean + momentum * (m - old_mean));
      new_mean.scale[c] = FiniteOrZero(std::fabs(old_mean) + magnitude);
      const long double corrected = squares / (n - 1);
      new_var.real[c] = static_cast<double>(old_var + momentum * (corrected - old_var));
      new_var.scale[c] = FiniteOrZero(std::fabs(old_var) + corrected);
    }
    const long double r = 1 / std::sqrt(v + eps);
    mean.real[c] = static_cast<double>(m);
    mean.scale[c] = FiniteOrZero(magnitude);
    invstd.real[c] = static_cast<double>(r);
    invstd.scale[c] = FiniteOrZero(r);
    const long double weight = inputs.size() > 3 ? inputs[3].real[c] : 1;
    const long double bias = inputs.size() > 4 ? inputs[4].real[c] : 0;
    for (const int64_t at : channels[c]) {
      y.real[at] = static_cast<double>((x.real[at] - m) * r * weight + bias);
      y.scale[at] = FiniteOrZero((std::fabs(x.real[at] - m) + magnitude) * r * std::fabs(weight) +
                                 std::fabs(bias));
    }
  }
  if (!training) return {y};
  return {y, mean, invstd, new_mean, new_var};
}

std::vector<Values> BatchNormBackward(const Attributes& attrs, Inputs inputs) {
  const Values &g = inputs[0], &x = inputs[1], &mean = inputs[2], &invstd = inputs[3];
  const bool training = Get(attrs, "training", false);
  const std::vector<Group> channels = ChannelsOf(x.spec.shape);
  const DType parameter = inputs.size() > 4 ? inputs[4].spec.dtype : x.spec.dtype;
  Values gx = Values::Of(x.spec.dtype, x.spec.shape);
  gx.scale.resize(gx.size());
  Values gw = PerChannel(parameter, static_cast<int64_t>(channels.size())), gb = gw;
  for (size_t c = 0; c < channels.size(); ++c) {
    const auto n = static_cast<long double>(channels[c].size());
    const long double r = invstd.real[c], weight = inputs.size() > 4 ? inputs[4].real[c] : 1;
    const auto normalized = [&](int64_t at) { return (x.real[at] - mean.real[c]) * r; };
    long double sum = 0, product = 0, magnitude = 0, product_magnitude = 0;
    for (const int64_t at : channels[c]) {
      sum += g.real[at];
      product += g.real[at] * normalized(at);
      magnitude += std::fabs(g.real[at]);
      product_magnitude += std::fabs(g.real[at] * normalized(at));
    }
    gw.real[c] = static_cast<double>(product);
    gw.scale[c] = FiniteOrZero(product_magnitude);
    gb.real[c] = static_cast<double>(sum);
    gb.scale[c] = FiniteOrZero(magnitude);
    for (const int64_t at : channels[c]) {
      const long double from_sums = training ? sum / n + normalized(at) * product / n : 0;
      gx.real[at] = static_cast<double>((g.real[at] - from_sums) * weight * r);
      gx.scale[at] = FiniteOrZero(
          (std::fabs(g.real[at]) +
           (training ? magnitude / n + std::fabs(normalized(at)) * product_magnitude / n : 0)) *
          std::fabs(weight) * r);
    }
  }
  auto gradients = Get<std::vector<int64_t>>(attrs, "gradients", {});
  if (gradients.empty()) gradients = {0, 1, 2};
  std::vector<Values> results;
  for (const int64_t operand : gradients) {
    results.push_back(operand == 0 ? gx : operand == 1 ? gw : gb);
  }
  return results;
}

}  // namespace

void AddBatchNormReferences(ReferenceTable& table) {
  table["batch_norm"] = BatchNorm;
  table["batch_norm_backward"] = BatchNormBackward;
}

}  // namespace tensord::conformance
