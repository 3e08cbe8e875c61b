// Group normalization and its gradient.
#include <cmath>
#include <vector>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

// The elements of x (N,C,…) by group, and the channel of each.
struct ChannelGroups {
  Shape statistics;  // (N,groups)
  int64_t channels, pixels, size;

  ChannelGroups(const Attributes& attrs, const Shape& x) : channels(x.dim(1)), pixels(1), size(0) {
    const int64_t groups = Get<int64_t>(attrs, "groups", 1);
    for (int d = 2; d < x.rank(); ++d) pixels *= x.dim(d);
    statistics = {x.dim(0), groups};
    size = channels / groups * pixels;
  }
  int64_t Channel(int64_t at) const { return at / pixels % channels; }
};

std::vector<Values> GroupNorm(const Attributes& attrs, Inputs in) {
  const Values& x = in[0];
  const ChannelGroups groups(attrs, x.spec.shape);
  const Real eps = Get<double>(attrs, "eps", 1e-5);
  Values y = ScaledValues(x.spec.dtype, x.spec.shape);
  Values mean = ScaledValues(StatisticsOf(x.spec.dtype), groups.statistics), rstd = mean;
  for (int64_t group = 0; group < mean.size(); ++group) {
    const int64_t begin = group * groups.size, end = begin + groups.size;
    Real sum = 0, magnitude = 0, squares = 0;
    for (int64_t at = begin; at < end; ++at) {
      sum += x.real[at];
      magnitude += std::abs(x.real[at]);
    }
    const Real m = sum / groups.size;
    for (int64_t at = begin; at < end; ++at) squares += (x.real[at] - m) * (x.real[at] - m);
    const Real r = 1 / std::sqrt(squares / groups.size + eps);
    mean.real[group] = static_cast<double>(m);
    mean.scale[group] = FiniteOrZero(magnitude / groups.size);
    rstd.real[group] = static_cast<double>(r);
    rstd.scale[group] = FiniteOrZero(r);
    for (int64_t at = begin; at < end; ++at) {
      const Real weight = in.size() > 1 ? in[1].real[groups.Channel(at)] : 1;
      const Real bias = in.size() > 2 ? in[2].real[groups.Channel(at)] : 0;
      y.real[at] = static_cast<double>((x.real[at] - m) * r * weight + bias);
      y.scale[at] =
          FiniteOrZero((std::abs(x.real[at]) + 2 * magnitude / groups.size) * r * std::abs(weight) +
                       std::abs(bias));
    }
  }
  return {y, mean, rstd};
}

std::vector<Values> GroupNormBackward(const Attributes& attrs, Inputs in) {
  const Values &g = in[0], &x = in[1], &mean = in[2], &rstd = in[3];
  const ChannelGroups groups(attrs, x.spec.shape);
  const DType parameter = in.size() > 4 ? in[4].spec.dtype : x.spec.dtype;
  Values gx = ScaledValues(x.spec.dtype, x.spec.shape);
  Values gw = ScaledValues(parameter, {groups.channels}), gb = gw;
  for (int64_t group = 0; group < mean.size(); ++group) {
    const int64_t begin = group * groups.size, end = begin + groups.size;
    const Real r = rstd.real[group];
    const auto normal = [&](int64_t at) { return (Real{x.real[at]} - mean.real[group]) * r; };
    const auto size_of_normal = [&](int64_t at) {
      return (std::abs(x.real[at]) + std::abs(mean.real[group])) * r;
    };
    const auto scaled = [&](int64_t at) {
      return Real{g.real[at]} * (in.size() > 4 ? in[4].real[groups.Channel(at)] : 1);
    };
    Real sum = 0, slope = 0, magnitude = 0, slope_magnitude = 0;
    for (int64_t at = begin; at < end; ++at) {
      const int64_t channel = groups.Channel(at);
      sum += scaled(at);
      slope += scaled(at) * normal(at);
      magnitude += std::abs(scaled(at));
      slope_magnitude += std::abs(scaled(at)) * size_of_normal(at);
      gw.real[channel] += static_cast<double>(g.real[at] * normal(at));
      gw.scale[channel] += FiniteOrZero(std::abs(g.real[at]) * size_of_normal(at));
      gb.real[channel] += g.real[at];
      gb.scale[channel] += std::abs(g.real[at]);
    }
    for (int64_t at = begin; at < end; ++at) {
      const Real n = groups.size;
      gx.real[at] = static_cast<double>(r * (scaled(at) - sum / n - normal(at) * slope / n));
      gx.scale[at] = FiniteOrZero(
          r * (std::abs(scaled(at)) + magnitude / n + size_of_normal(at) * slope_magnitude / n));
    }
  }
  std::vector<Values> all = {gx, gw, gb}, results;
  for (const int64_t operand : Get<std::vector<int64_t>>(attrs, "gradients", {})) {
    results.push_back(all[operand]);
  }
  return results.empty() ? all : results;
}

}  // namespace

void AddGroupNormReferences(ReferenceTable& table) {
  table["group_norm"] = GroupNorm;
  table["group_norm_backward"] = GroupNormBackward;
}

}  // namespace tensord::conformance
